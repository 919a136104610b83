"""The ZooKeeper lock on a real server, beside a real Curator client: the jars come with PySpark."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import pytest

from lakewright.errors import LockLostError, StorageUnavailableError
from lakewright.runtime import SystemRandom
from lakewright.txn.locks.protocol import LockHolder, acquire
from tests.txn.locks.contention import HastyClock, busy, contend, obtained

pytest.importorskip("kazoo")
from lakewright.txn.locks.zookeeper import ZookeeperLock, sequence

PATH = "/hudi/locks/orders"

CURATOR = """
import java.nio.file.*;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.*;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Counts in a file under a mutex, or takes the mutex and gives it back when a line comes in. */
public class Curator {
  public static void main(String[] args) throws Exception {
    CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100));
    client.start();
    client.blockUntilConnected();
    InterProcessMutex mutex = new InterProcessMutex(client, args[1]);
    if (args[2].equals("hold")) {
      if (!mutex.acquire(30, TimeUnit.SECONDS)) System.exit(3);
      System.out.println("held");
      System.in.read();
      mutex.release();
      System.out.println("free");
    } else if (args[2].equals("try")) {
      System.out.println(mutex.acquire(300, TimeUnit.MILLISECONDS));
    } else {
      Path counter = Path.of(args[3]);
      for (int i = 0; i < Integer.parseInt(args[2]); i++) {
        if (!mutex.acquire(60, TimeUnit.SECONDS)) System.exit(3);
        int value = Integer.parseInt(Files.readString(counter));
        Thread.sleep(2);
        Files.writeString(counter, String.valueOf(value + 1));
        mutex.release();
        Thread.sleep(5);
      }
    }
    client.close();
  }
}
"""


def test_nodes_are_ordered_by_their_number_whoever_made_them() -> None:
    nodes = ["_c_ffff-lock-0000000001", "_c_0000-lock-0000000003", "lock-0000000002"]
    assert sorted(nodes, key=sequence) == [nodes[0], nodes[2], nodes[1]]


def _jars() -> str:
    spec = importlib.util.find_spec("pyspark")
    jars = Path(spec.origin or "").parent / "jars" if spec is not None else Path("absent")
    if shutil.which("java") is None or not list(jars.glob("zookeeper-3*.jar")):
        pytest.skip("no Java, or no PySpark with ZooKeeper's jars")
    return f"{jars}/*"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a ZooKeeper server of our own, on loopback."""
    folder = tmp_path_factory.mktemp("zookeeper")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "zoo.cfg").write_text(
        f"dataDir={folder}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        "tickTime=200\nadmin.enableServer=false\nmaxClientCnxns=0\n"
    )
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    flags = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", _jars()]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["java", *flags, main, str(folder / "zoo.cfg")], stdout=log, stderr=log
        )
    yield f"127.0.0.1:{port}"
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def curator(server: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the Curator client, up to its arguments."""
    source = tmp_path_factory.mktemp("curator") / "Curator.java"
    source.write_text(CURATOR)
    return ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", _jars(), str(source), server]


def _lock(server: str, path: str = PATH) -> ZookeeperLock:
    return ZookeeperLock(server, path, session_timeout_s=4, connection_timeout_s=60)


@pytest.mark.slow
def test_a_lock_is_granted_checked_and_freed(server: str) -> None:
    mine, other = _lock(server), _lock(server)
    lease = obtained(mine.try_acquire("commit"))
    holder = busy(other.try_acquire("other"))
    assert holder.who == "commit" and holder.since_ms is not None
    lease.check()
    lease.release()
    lease.release()
    with pytest.raises(LockLostError):
        lease.check()
    second = obtained(other.try_acquire("other"))
    lease.release()
    second.check()
    second.release()
    mine.close()
    other.close()


@pytest.mark.slow
def test_a_lock_goes_with_its_session_and_its_holder_notices(server: str) -> None:
    mine, other = _lock(server), _lock(server)
    lease = obtained(mine.try_acquire("me"))
    lease._client.stop()
    with pytest.raises(LockLostError):
        lease.check()
    obtained(other.try_acquire("other")).release()
    other.close()


@pytest.mark.slow
@pytest.mark.parametrize("contenders", [2, 8])
def test_contenders_take_turns(server: str, contenders: int) -> None:
    contend(lambda n: _lock(server, f"/turns/{contenders}"), contenders, 24 // contenders)


@pytest.mark.slow
def test_curator_and_we_keep_each_other_out(server: str, curator: list[str]) -> None:
    lock = _lock(server)
    process = subprocess.Popen(
        [*curator, PATH, "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    stdin, stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    assert stdout.readline() == b"held\n"
    assert isinstance(lock.try_acquire("me"), LockHolder)
    stdin.write(b"\n")
    stdin.close()
    assert stdout.readline() == b"free\n"
    assert process.wait(60) == 0
    lease = obtained(lock.try_acquire("me"))
    refused = subprocess.run([*curator, PATH, "try"], capture_output=True, check=True)
    assert refused.stdout == b"false\n"
    lease.check()
    lease.release()
    granted = subprocess.run([*curator, PATH, "try"], capture_output=True, check=True)
    assert granted.stdout == b"true\n"
    lock.close()


@pytest.mark.slow
def test_curator_and_we_count_together_without_losing_one(
    server: str, curator: list[str], tmp_path: Path
) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    path = "/counting/lock"
    process = subprocess.Popen([*curator, path, "40", str(counter)], stdout=sys.stderr)

    def count() -> None:
        lock = _lock(server, path)
        for _ in range(40):
            lease = acquire(lock, "us", wait_s=60, clock=HastyClock(), random=SystemRandom())
            value = int(counter.read_text())
            lease.check()
            counter.write_text(str(value + 1))
            lease.release()
        lock.close()

    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert process.wait(120) == 0
    assert counter.read_text() == "120"


def test_a_server_that_does_not_answer_is_a_passing_failure() -> None:
    lock = ZookeeperLock("127.0.0.1:1", PATH, connection_timeout_s=0.3)
    with pytest.raises(StorageUnavailableError) as caught:
        lock.try_acquire("me")
    assert caught.value.retryable

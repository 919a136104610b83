import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider;
import org.apache.hudi.common.config.LockConfiguration;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.hadoop.fs.HadoopFSUtils;

/**
 * Counts in a file under Hudi's own file-system lock, as its lock manager uses it: a new provider for
 * each lock, unlock, then close. Arguments: table path, counter file, seconds. Prints its own count.
 */
public class LockLoop {
  public static void main(String[] args) throws Exception {
    TypedProperties properties = new TypedProperties();
    properties.setProperty("hoodie.base.path", args[0]);
    properties.setProperty("hoodie.write.lock.filesystem.path", args[0] + "/.hoodie");
    properties.setProperty("hoodie.write.lock.filesystem.expire", "0");
    Path counter = Path.of(args[1]);
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(args[2]));
    ThreadLocalRandom random = ThreadLocalRandom.current();
    System.out.println("ready");
    int counted = 0;
    while (System.nanoTime() < end) {
      FileSystemBasedLockProvider provider =
          new FileSystemBasedLockProvider(
              new LockConfiguration(properties), HadoopFSUtils.getStorageConf(new Configuration()));
      if (provider.tryLock(1, TimeUnit.SECONDS)) {
        int value = Integer.parseInt(Files.readString(counter));
        Thread.sleep(random.nextInt(20));
        Files.writeString(counter, String.valueOf(value + 1));
        counted++;
        provider.unlock();
        provider.close();
      }
      Thread.sleep(random.nextInt(60));
    }
    System.out.println(counted);
  }
}

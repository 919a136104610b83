import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.OutputStream;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.DigestOutputStream;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.hudi.io.ByteArraySeekableDataInputStream;
import org.apache.hudi.io.SeekableDataInputStream;
import org.apache.hudi.io.hfile.HFileReaderImpl;
import org.apache.hudi.io.hfile.KeyValue;
import org.apache.hudi.io.hfile.UTF8StringKey;

/**
 * Reads HFiles with Hudi's own reader, whole and by the keys of "FILE.keys", and prints for each of
 * them: number of cells, digest of the scan, keys found, digest of what was found.
 */
public class HFileNative {
  public static void main(String[] files) throws Exception {
    for (String file : files) {
      HFileReaderImpl reader = open(Path.of(file));
      MessageDigest all = MessageDigest.getInstance("SHA-256");
      long cells = 0;
      try (DataOutputStream out = digested(all)) {
        for (boolean there = reader.seekTo(); there; there = reader.next()) {
          put(out, reader.getKeyValue().get());
          cells++;
        }
      }
      if (reader.getNumKeyValueEntries() != cells) {
        throw new IllegalStateException(cells + " cells, told " + reader.getNumKeyValueEntries());
      }
      MessageDigest some = MessageDigest.getInstance("SHA-256");
      long found = 0;
      HFileReaderImpl second = open(Path.of(file));
      second.seekTo(); // keys are sought forward from there
      try (DataOutputStream out = digested(some)) {
        for (String key : keys(Path.of(file + ".keys"))) {
          if (second.seekTo(new UTF8StringKey(key)) == 0) {
            put(out, second.getKeyValue().get());
            found++;
          }
        }
      }
      System.out.println(cells + " " + hex(all) + " " + found + " " + hex(some));
    }
  }

  static HFileReaderImpl open(Path file) throws Exception {
    byte[] data = Files.readAllBytes(file);
    // The stream below has another package in each release.
    Constructor<?> outer = ByteArraySeekableDataInputStream.class.getConstructors()[0];
    Object inner =
        outer.getParameterTypes()[0].getConstructor(byte[].class).newInstance((Object) data);
    SeekableDataInputStream stream = (SeekableDataInputStream) outer.newInstance(inner);
    HFileReaderImpl reader = new HFileReaderImpl(stream, data.length);
    reader.initializeMetadata();
    return reader;
  }

  static void put(DataOutputStream out, KeyValue cell) throws Exception {
    out.writeInt(cell.getKeyContentLength());
    out.write(cell.getBytes(), cell.getKeyContentOffset(), cell.getKeyContentLength());
    out.writeInt(cell.getValueLength());
    out.write(cell.getBytes(), cell.getValueOffset(), cell.getValueLength());
  }

  static List<String> keys(Path file) throws Exception {
    List<String> out = new ArrayList<>();
    try (DataInputStream in = new DataInputStream(Files.newInputStream(file))) {
      while (in.available() > 0) {
        out.add(new String(in.readNBytes(in.readInt()), StandardCharsets.UTF_8));
      }
    }
    return out;
  }

  static DataOutputStream digested(MessageDigest digest) {
    return new DataOutputStream(new DigestOutputStream(OutputStream.nullOutputStream(), digest));
  }

  static String hex(MessageDigest digest) {
    return HexFormat.of().formatHex(digest.digest());
  }
}

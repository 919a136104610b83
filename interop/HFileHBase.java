import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.security.DigestOutputStream;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hudi.org.apache.hadoop.hbase.Cell;
import org.apache.hudi.org.apache.hadoop.hbase.CellUtil;
import org.apache.hudi.org.apache.hadoop.hbase.KeyValue;
import org.apache.hudi.org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hudi.org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hudi.org.apache.hadoop.hbase.io.hfile.HFileScanner;

/** The same as HFileNative, with HBase's reader, which Hudi 0.15 uses by default. */
public class HFileHBase {
  public static void main(String[] files) throws Exception {
    Configuration conf = new Configuration();
    conf.setBoolean("fs.file.impl.disable.cache", true);
    for (String file : files) {
      Path path = new Path("file://" + file);
      FileSystem fs = path.getFileSystem(conf);
      HFile.Reader reader = HFile.createReader(fs, path, CacheConfig.DISABLED, true, conf);
      MessageDigest all = MessageDigest.getInstance("SHA-256");
      long cells = 0;
      try (DataOutputStream out = digested(all)) {
        HFileScanner scanner = reader.getScanner(false, false);
        for (boolean there = scanner.seekTo(); there; there = scanner.next()) {
          put(out, scanner.getCell());
          cells++;
        }
      }
      if (reader.getEntries() != cells) {
        throw new IllegalStateException(cells + " cells, told " + reader.getEntries());
      }
      MessageDigest some = MessageDigest.getInstance("SHA-256");
      long found = 0;
      try (DataOutputStream out = digested(some)) {
        HFileScanner scanner = reader.getScanner(false, true);
        for (byte[] key : keys(file + ".keys")) {
          if (cells > 0 && scanner.seekTo(new KeyValue(key, null, null, null)) == 0) {
            put(out, scanner.getCell());
            found++;
          }
        }
      }
      System.out.println(cells + " " + hex(all) + " " + found + " " + hex(some));
      reader.close();
    }
  }

  static void put(DataOutputStream out, Cell cell) throws Exception {
    byte[] row = CellUtil.cloneRow(cell);
    byte[] value = CellUtil.cloneValue(cell);
    out.writeInt(row.length);
    out.write(row);
    out.writeInt(value.length);
    out.write(value);
  }

  static List<byte[]> keys(String file) throws Exception {
    List<byte[]> out = new ArrayList<>();
    try (DataInputStream in =
        new DataInputStream(Files.newInputStream(java.nio.file.Path.of(file)))) {
      while (in.available() > 0) {
        out.add(in.readNBytes(in.readInt()));
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

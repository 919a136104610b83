import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.common.config.HoodieMetadataConfig;
import org.apache.hudi.common.engine.HoodieLocalEngineContext;
import org.apache.hudi.metadata.HoodieTableMetadata;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.storage.hadoop.HadoopStorageConfiguration;
import org.apache.hudi.storage.hadoop.HoodieHadoopStorage;

/**
 * Looks keys up in the record index of a table with Hudi's own reader, again and again in one warm
 * process: "TABLE KEYS ROUNDS". Prints per round the seconds, from opening on, and the keys found.
 */
public class RecordIndexLookUp {
  public static void main(String[] arguments) throws Exception {
    String table = arguments[0];
    List<String> keys = Files.readAllLines(Path.of(arguments[1]), StandardCharsets.UTF_8);
    HadoopStorageConfiguration settings = new HadoopStorageConfiguration(new Configuration());
    HoodieMetadataConfig config =
        HoodieMetadataConfig.newBuilder().enable(true).withEnableRecordIndex(true).build();
    for (int round = 0; round < Integer.parseInt(arguments[2]); round++) {
      long begun = System.nanoTime();
      try (HoodieTableMetadata metadata =
          HoodieTableMetadata.create(
              new HoodieLocalEngineContext(settings),
              new HoodieHadoopStorage(new StoragePath(table), settings),
              config,
              table)) {
        Map<?, ?> found = metadata.readRecordIndex(keys);
        System.out.println((System.nanoTime() - begun) / 1e9 + " " + found.size());
      }
    }
  }
}

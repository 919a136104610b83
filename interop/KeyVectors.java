import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.sql.Timestamp;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TimeZone;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.common.util.PartitionPathEncodeUtils;
import org.apache.hudi.keygen.BaseKeyGenerator;
import org.apache.hudi.keygen.ComplexAvroKeyGenerator;
import org.apache.hudi.keygen.TimestampBasedAvroKeyGenerator;
import org.joda.time.DateTimeZone;

/** Prints what the JVM and Hudi's own key generators make of many values, a line for each. */
public class KeyVectors {
  static final Random CHANCE = new Random(11);
  static final String PREFIX = "hoodie.keygen.timebased.";

  public static void main(String[] args) {
    numbers();
    times();
    texts();
    partitions();
  }

  static void line(Object... parts) {
    StringBuilder out = new StringBuilder();
    for (Object part : parts) {
      out.append(out.length() == 0 ? "" : "\t").append(part);
    }
    System.out.println(out);
  }

  static String base64(String text) {
    return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
  }

  static void numbers() {
    for (int i = 0; i < 400; i++) {
      long bits = CHANCE.nextLong();
      double some = i % 4 == 0 ? Double.longBitsToDouble(bits) : i % 4 == 1 ? CHANCE.nextInt()
          : i % 4 == 2 ? (bits % 100000) / 1000.0 : Math.scalb(1.0, CHANCE.nextInt(400) - 200);
      line("double", Double.doubleToRawLongBits(some), Double.toString(some));
      float less = i % 2 == 0 ? Float.intBitsToFloat((int) bits) : (float) some;
      line("float", Float.floatToRawIntBits(less), Float.toString(less));
    }
    for (int i = 0; i < 200; i++) {
      BigInteger digits = new BigInteger(CHANCE.nextInt(100) + 1, CHANCE);
      BigDecimal value = new BigDecimal(i % 5 == 0 ? BigInteger.ZERO : i % 2 == 0 ? digits : digits.negate(),
          CHANCE.nextInt(30));
      line("decimal", value.unscaledValue(), value.scale(), value);
    }
    for (int i = 0; i < 100; i++) {
      long day = i == 0 ? 2932896 : i == 1 ? 2932897 : CHANCE.nextInt(6000000) - 3000000;
      line("date", day, LocalDate.ofEpochDay(day));
    }
  }

  static void times() {
    for (String zone : new String[] {"UTC", "Asia/Tokyo", "America/New_York", "Asia/Kolkata"}) {
      TimeZone.setDefault(TimeZone.getTimeZone(zone));
      for (int i = 0; i < 60; i++) {
        long micros = (CHANCE.nextLong() >>> 13) % 4_000_000_000_000_000L - (i % 3 == 0 ? 0 : 1_000_000_000_000_000L);
        micros = i % 4 == 0 ? micros / 100_000 * 100_000 : micros;
        line("timestamp", zone, micros, new Timestamp(micros / 1000));
      }
    }
    TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
  }

  static String text() {
    StringBuilder text = new StringBuilder();
    for (int i = CHANCE.nextInt(8); i > 0; i--) {
      text.appendCodePoint(CHANCE.nextInt(4) == 0 ? 0x1F600 + CHANCE.nextInt(50) : CHANCE.nextInt(300));
    }
    return text.toString();
  }

  static void texts() {
    Schema schema = new Schema.Parser().parse("{\"type\":\"record\",\"name\":\"r\",\"fields\":["
        + "{\"name\":\"a\",\"type\":[\"null\",\"string\"]},{\"name\":\"b\",\"type\":[\"null\",\"double\"]},"
        + "{\"name\":\"p\",\"type\":[\"null\",\"string\"]}]}");
    TypedProperties settings = new TypedProperties();
    settings.setProperty("hoodie.datasource.write.recordkey.field", "a,b");
    settings.setProperty("hoodie.datasource.write.partitionpath.field", "p");
    settings.setProperty("hoodie.datasource.write.partitionpath.urlencode", "true");
    settings.setProperty("hoodie.datasource.write.hive_style_partitioning", "true");
    BaseKeyGenerator generator = new ComplexAvroKeyGenerator(settings);
    for (int i = 0; i < 200; i++) {
      String some = text();
      line("escape", base64(some), base64(PartitionPathEncodeUtils.escapePathName(some)));
      GenericRecord record = new GenericData.Record(schema);
      String a = i % 7 == 0 ? null : text();
      Double b = a == null || a.isEmpty() || i % 5 != 0 ? Double.valueOf(CHANCE.nextInt(90000) / 64.0) : null;
      String p = i % 6 == 0 ? null : text();
      record.put("a", a);
      record.put("b", b);
      record.put("p", p);
      line("key", a == null ? "null" : base64(a), b, p == null ? "null" : base64(p),
          base64(generator.getRecordKey(record)), base64(generator.getPartitionPath(record)));
    }
  }

  static void partitions() {
    String[] outputs = {"yyyyMMdd", "yyyy/MM/dd/HH", "yyyy-MM-dd hh", "yy-M-d H:m:s",
        "yyyy-MM-dd'T'HH:mm:ss.SSSZ", "EEE w D", "EEEE MMM MMMM", "kk:mm a K h", "xxxx-ww-e", "yyyy SS S", "''yyyy"};
    String[] zones = {"", "UTC", "GMT+8:00", "America/New_York", "Asia/Kolkata", "Europe/London"};
    String[][] kinds = {{"UNIX_TIMESTAMP", ""}, {"EPOCHMILLISECONDS", ""}, {"SCALAR", "NANOSECONDS"},
        {"SCALAR", "MICROSECONDS"}, {"SCALAR", "MILLISECONDS"}, {"SCALAR", "SECONDS"}, {"SCALAR", "MINUTES"},
        {"SCALAR", "HOURS"}, {"SCALAR", "DAYS"}};
    long[] per = {1_000_000_000L, 1_000_000L, 1, 1_000, 1_000_000L, 1_000_000_000L, 60_000_000_000L,
        3_600_000_000_000L, 86_400_000_000_000L};
    for (int k = 0; k < kinds.length; k++) {
      for (int i = 0; i < 40; i++) {
        Map<String, String> settings = new LinkedHashMap<>();
        settings.put("timestamp.type", kinds[k][0]);
        if (!kinds[k][1].isEmpty()) {
          settings.put("timestamp.scalar.time.unit", kinds[k][1]);
        }
        settings.put("output.dateformat", outputs[CHANCE.nextInt(outputs.length)]);
        zone(settings, zones);
        long unit = k == 0 ? 1_000_000_000L : k == 1 ? 1_000_000L : per[k];
        long nanos = (CHANCE.nextLong() >>> 1) % 2_000_000_000_000_000_000L - (i % 3 == 0 ? 1_000_000_000_000_000_000L : 0);
        Object value = i % 13 == 0 ? null : i % 5 == 0 && k != 2 ? (Object) (nanos / unit + 0.75) : Long.valueOf(nanos / unit);
        print(settings, value instanceof Double ? "double" : "long", value);
      }
    }
    String[][] inputs = {{"yyyy-MM-dd", "2024-02-29"}, {"yyyy-MM-dd'T'HH:mm:ss.SSSZ", "2023-04-03T12:01:00.123+05:30"},
        {"yyyy-MM-dd'T'HH:mm:ss.SSSZ", "2023-04-03T12:01:00.123Z"}, {"yyyy-MM-dd'T'HH:mm:ssZ,yyyy-MM-dd", "2021-11-07"},
        {"yyyy-MM-dd HH:mm", "2021-03-28 23:30"}, {"MM/dd/yyyy hh:mm a", "07/04/1969 12:05 AM"}, {"yyyy D", "2020 366"},
        {"dd MMM yyyy", "09 Oct 1999"}, {"yyyyMMddHHmmssSSS", "20211231235959999"}, {"yyyy-MM-dd HH:mm:ss.S", "2021-01-02 03:04:05.7"}};
    for (String[] input : inputs) {
      for (int i = 0; i < 24; i++) {
        Map<String, String> settings = new LinkedHashMap<>();
        settings.put("timestamp.type", "DATE_STRING");
        settings.put("input.dateformat", input[0]);
        settings.put("output.dateformat", outputs[CHANCE.nextInt(outputs.length)]);
        zone(settings, zones);
        if (!settings.containsKey("timezone") && CHANCE.nextBoolean()) {
          settings.put("input.timezone", zones[1 + CHANCE.nextInt(zones.length - 1)]);
        }
        print(settings, "string", i % 11 == 0 ? null : input[1]);
      }
    }
  }

  static void zone(Map<String, String> settings, String[] zones) {
    String zone = zones[CHANCE.nextInt(zones.length)];
    if (!zone.isEmpty()) {
      settings.put(CHANCE.nextBoolean() ? "timezone" : "output.timezone", zone);
    }
  }

  static void print(Map<String, String> settings, String type, Object value) {
    TypedProperties properties = new TypedProperties();
    properties.setProperty("hoodie.datasource.write.recordkey.field", "id");
    properties.setProperty("hoodie.datasource.write.partitionpath.field", "t");
    List<String> told = new ArrayList<>();
    settings.forEach((name, setting) -> {
      properties.setProperty(PREFIX + name, setting);
      told.add(name + "=" + setting);
    });
    Schema schema = new Schema.Parser().parse("{\"type\":\"record\",\"name\":\"r\",\"fields\":["
        + "{\"name\":\"id\",\"type\":\"string\"},{\"name\":\"t\",\"type\":[\"null\",\"" + type + "\"]}]}");
    GenericRecord record = new GenericData.Record(schema);
    record.put("id", "k");
    record.put("t", value);
    String path;
    try {
      path = new TimestampBasedAvroKeyGenerator(properties).getPartitionPath(record);
    } catch (Exception refused) {
      path = "!";
    }
    line("time", String.join(";", told), type, value, path);
  }
}

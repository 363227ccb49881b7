package sparkswarm;

import java.io.Closeable;
import java.io.File;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A source of points in files that are appended to while a stream reads them, in micro-batches or in
 * Real-time Mode.
 *
 * <p>Option {@code path} is a folder with the files {@code 0}, {@code 1} and so on, one for each of
 * {@code partitions}. A point has 32 bytes: id, x, y, and its time in microseconds. Points can be read
 * again from any offset, by any process of the machine.
 */
public final class AppendedPoints implements TableProvider {
  private static final int POINT_BYTES = 32;
  private static final int BUFFER_POINTS = 1024;
  private static final long POLL_NANOS = 200_000;

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return StructType.fromDDL("id BIGINT, x DOUBLE, y DOUBLE, at TIMESTAMP");
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> options) {
    return new PointsTable(schema);
  }

  private static final class PointsTable implements SupportsRead {
    private final StructType schema;

    PointsTable(StructType schema) {
      this.schema = schema;
    }

    @Override
    public String name() {
      return "appended points";
    }

    @Override
    public StructType schema() {
      return schema;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      String folder = options.get("path");
      int partitions = options.getInt("partitions", 1);
      return () ->
          new Scan() {
            @Override
            public StructType readSchema() {
              return schema;
            }

            @Override
            public MicroBatchStream toMicroBatchStream(String checkpoint) {
              return new Points(folder, partitions);
            }
          };
    }
  }

  /** How many points of each file were read. */
  private static final class Read extends Offset {
    private final long[] points;

    Read(long[] points) {
      this.points = points;
    }

    static Read of(String json) {
      String[] numbers = json.substring(1, json.length() - 1).split(",");
      return new Read(Arrays.stream(numbers).map(String::trim).mapToLong(Long::parseLong).toArray());
    }

    @Override
    public String json() {
      return Arrays.toString(points);
    }
  }

  private record PartRead(int partition, long points) implements PartitionOffset {}

  private record Part(String file, int partition, long start, long end) implements InputPartition {}

  private static final class Points implements MicroBatchStream, SupportsRealTimeMode {
    private final String folder;
    private final int partitions;

    Points(String folder, int partitions) {
      this.folder = folder;
      this.partitions = partitions;
    }

    private String file(int partition) {
      return Path.of(folder, Integer.toString(partition)).toString();
    }

    @Override
    public Offset initialOffset() {
      return new Read(new long[partitions]);
    }

    @Override
    public Offset latestOffset() {
      long[] points = new long[partitions];
      Arrays.setAll(points, i -> new File(file(i)).length() / POINT_BYTES);
      return new Read(points);
    }

    @Override
    public Offset deserializeOffset(String json) {
      return Read.of(json);
    }

    @Override
    public Offset mergeOffsets(PartitionOffset[] offsets) {
      long[] points = new long[partitions];
      for (PartitionOffset offset : offsets) {
        PartRead read = (PartRead) offset;
        points[read.partition()] = read.points();
      }
      return new Read(points);
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start) {
      long[] end = new long[partitions];
      Arrays.fill(end, Long.MAX_VALUE);
      return planInputPartitions(start, new Read(end));
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      InputPartition[] parts = new InputPartition[partitions];
      long[] from = ((Read) start).points;
      long[] to = ((Read) end).points;
      Arrays.setAll(parts, i -> new Part(file(i), i, from[i], to[i]));
      return parts;
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new Readers();
    }

    @Override
    public void commit(Offset end) {}

    @Override
    public void stop() {}
  }

  private static final class Readers implements PartitionReaderFactory, Serializable {
    private static final long serialVersionUID = 1L;

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      return new Reader((Part) partition);
    }
  }

  private static final class Reader implements SupportsRealTimeRead<InternalRow>, Closeable {
    private final Part part;
    private final FileChannel file;
    private final ByteBuffer buffer =
        ByteBuffer.allocateDirect(BUFFER_POINTS * POINT_BYTES).order(ByteOrder.LITTLE_ENDIAN);
    private long next;
    private InternalRow row;

    Reader(Part part) {
      this.part = part;
      this.next = part.start();
      buffer.limit(0);
      try {
        file = FileChannel.open(Path.of(part.file()), StandardOpenOption.READ);
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    @Override
    public boolean next() throws IOException {
      if (next >= part.end() || (buffer.remaining() < POINT_BYTES && !fill())) {
        return false;
      }
      Object[] point = {
        buffer.getLong(), buffer.getDouble(), buffer.getDouble(), buffer.getLong()
      };
      row = new GenericInternalRow(point);
      next++;
      return true;
    }

    /** Reads what there is from the next point on; returns whether there is one. */
    private boolean fill() throws IOException {
      buffer.clear();
      file.read(buffer, next * POINT_BYTES);
      buffer.flip();
      return buffer.remaining() >= POINT_BYTES;
    }

    @Override
    public RecordStatus nextWithTimeout(Long timeoutMillis) throws IOException {
      long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
      boolean found = next();
      while (!found && System.nanoTime() < end && !Thread.currentThread().isInterrupted()) {
        LockSupport.parkNanos(POLL_NANOS);
        found = next();
      }
      return RecordStatus.newStatusWithoutArrivalTime(found);
    }

    @Override
    public InternalRow get() {
      return row;
    }

    @Override
    public PartitionOffset getOffset() {
      return new PartRead(part.partition(), next);
    }

    @Override
    public void close() throws IOException {
      file.close();
    }
  }
}

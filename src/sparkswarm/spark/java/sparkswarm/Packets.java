package sparkswarm;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Packs the rows of a partition that never ends, by time: each row leaves at once, or with the rows
 * that come until {@code lingerMillis} after the packet before.
 *
 * <p>Spark asks for a row more before it sends a full batch to Python, and has no timeout. So a packet
 * is one row, and an empty row comes before it and after it: with batches of two rows Spark sends each
 * packet as soon as it is there.
 */
public final class Packets implements MapPartitionsFunction<Row, Row> {
  private static final long serialVersionUID = 1L;
  private static final Object END = new Object();
  private static final Row NO_PACKET = RowFactory.create(new Object[] {null});

  private final long lingerNanos;
  private final int mostRows;

  public Packets(double lingerMillis, int mostRows) {
    this.lingerNanos = (long) (lingerMillis * 1e6);
    this.mostRows = mostRows;
  }

  @Override
  public Iterator<Row> call(Iterator<Row> rows) {
    return new Packing(rows, lingerNanos, mostRows);
  }

  private static final class Packing implements Iterator<Row> {
    private final ArrayBlockingQueue<Object> waiting;
    private final long lingerNanos;
    private final int mostRows;
    private volatile Throwable failure;
    private long due = System.nanoTime();
    private boolean packetIsNext;
    private boolean ended;
    private Row packet;

    Packing(Iterator<Row> rows, long lingerNanos, int mostRows) {
      this.lingerNanos = lingerNanos;
      this.mostRows = mostRows;
      this.waiting = new ArrayBlockingQueue<>(2 * mostRows);
      TaskContext context = TaskContext.get();
      Thread reader = new Thread(() -> read(rows, context), "sparkswarm-packets");
      reader.setDaemon(true);
      // Rows must not be read any more once Spark frees what they lie in.
      context.addTaskCompletionListener((TaskCompletionListener) ended -> stop(reader));
      reader.start();
    }

    private void read(Iterator<Row> rows, TaskContext context) {
      TaskContext$.MODULE$.setTaskContext(context);
      try {
        while (rows.hasNext()) {
          waiting.put(rows.next());
        }
      } catch (InterruptedException stopped) {
        return;
      } catch (Throwable error) {
        failure = error;
      } finally {
        TaskContext$.MODULE$.unset();
      }
      try {
        waiting.put(END);
      } catch (InterruptedException stopped) {
        // Nobody waits for the end any more.
      }
    }

    private static void stop(Thread reader) {
      reader.interrupt();
      try {
        reader.join(10_000);
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
      }
    }

    @Override
    public boolean hasNext() {
      if (!packetIsNext) {
        return true;
      }
      if (packet == null && !ended) {
        packet = collect();
      }
      return packet != null;
    }

    @Override
    public Row next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      if (!packetIsNext) {
        packetIsNext = true;
        return NO_PACKET;
      }
      Row full = packet;
      packet = null;
      packetIsNext = false;
      return full;
    }

    /** Returns the next packet; null at the end. */
    private Row collect() {
      List<Row> rows = new ArrayList<>();
      try {
        Object one = waiting.take();
        while (one != END) {
          rows.add((Row) one);
          if (rows.size() >= mostRows) {
            break;
          }
          one = waiting.poll();
          if (one == null) {
            one = waiting.poll(due - System.nanoTime(), TimeUnit.NANOSECONDS);
          }
          if (one == null) {
            break;
          }
        }
        ended = one == END;
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
        throw new RuntimeException("stopped while waiting for rows", stopped);
      }
      if (ended && failure != null) {
        throw new RuntimeException(failure);
      }
      due = System.nanoTime() + lingerNanos;
      return rows.isEmpty() ? null : RowFactory.create(new Object[] {rows.toArray(new Row[0])});
    }
  }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;

/**
 * The load of peers/loads.py for members in Java. They are told by lines: "expect MESSAGES RATE" to all, then
 * "go MESSAGES RATE" to all, for each phase; "stop" at the end. They say "ready" and "done NANOSECONDS".
 */
final class Load {
    private static final int STAMP_BYTES = 8, BURST = 64;

    /** How a system sends. */
    interface Sender {
        void send(byte[] payload) throws Exception;

        /** After a burst. */
        default void flush() throws Exception {}
    }

    final int index, nodes, size;
    private final Path delaysFile;
    private long expected, delivered;
    private ByteBuffer delays = ByteBuffer.allocate(0);

    Load(String[] args) {
        index = Integer.parseInt(args[0]);
        nodes = Integer.parseInt(args[1]);
        size = Integer.parseInt(args[2]);
        delaysFile = Path.of(args[3], "n" + index + ".delays");
    }

    /** Count a delivery; `at` is where the payload begins. */
    synchronized void take(byte[] payload, int at, int length) {
        if (length != size) throw new IllegalStateException("a payload of " + length + " bytes");
        if (delays.hasRemaining()) {
            long sent = ByteBuffer.wrap(payload).order(ByteOrder.LITTLE_ENDIAN).getLong(at);
            delays.putLong(System.nanoTime() - sent);
        }
        if (++delivered == expected) notifyAll();
    }

    /** Do what the lines say, until they end. */
    void run(Sender sender) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = lines.readLine(); line != null && !line.equals("stop"); line = lines.readLine()) {
            String[] words = line.split(" ");
            int messages = Integer.parseInt(words[1]);
            double rate = Double.parseDouble(words[2]);
            if (words[0].equals("expect")) {
                expect(messages, rate > 0);
                System.out.println("ready");
            } else {
                phase(sender, messages, rate);
                System.out.println("done " + System.nanoTime());
            }
        }
    }

    /** Count from zero: others may send before this member does. */
    private synchronized void expect(int messages, boolean isTimed) {
        delivered = 0;
        expected = (long) nodes * messages;
        delays = ByteBuffer.allocate(isTimed ? 8 * nodes * messages : 0).order(ByteOrder.LITTLE_ENDIAN);
    }

    private void phase(Sender sender, int messages, double rate) throws Exception {
        byte[] payload = new byte[size];
        long began = System.nanoTime();
        int sent = 0;
        while (sent < messages) {
            long due = rate == 0 ? messages : (long) ((System.nanoTime() - began) / 1e9 * rate) + 1;
            int burst = (int) Math.min(Math.min(due, messages) - sent, BURST);
            if (burst <= 0) {
                LockSupport.parkNanos(began + (long) (sent / rate * 1e9) - System.nanoTime());
                continue;
            }
            for (int each = 0; each < burst; each++) {
                byte[] own = payload.clone();  // a stack keeps what it was given until it is acknowledged
                ByteBuffer.wrap(own).order(ByteOrder.LITTLE_ENDIAN).putLong(System.nanoTime());
                sender.send(own);
            }
            sender.flush();
            sent += burst;
        }
        synchronized (this) {
            while (delivered < expected) wait();
            Files.write(delaysFile, java.util.Arrays.copyOf(delays.array(), delays.position()));
        }
    }
}

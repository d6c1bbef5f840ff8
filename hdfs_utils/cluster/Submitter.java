package gradreduce;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapred.JobClient;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.streaming.StreamJob;
import org.apache.hadoop.util.ToolRunner;

/**
 * Runs streaming jobs one after the other, as "hadoop jar hadoop-streaming.jar" runs one.
 *
 * A line of the standard input has a job's arguments, percent-encoded and separated by TABs. When
 * the job is over, a line of the standard error has ENDED and the exit code. The end of the input
 * is the end of the driver: nothing is submitted any more, not even what is about to be.
 */
public final class Submitter {
    private static final String ENDED = "gradreduce: ended with ";

    private Submitter() {}

    public static void main(String[] arguments) throws Exception {
        BlockingQueue<String> jobs = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> read(jobs), "reader");
        reader.setDaemon(true);
        reader.start();
        meet();
        while (true) {
            System.err.println(ENDED + run(jobs.take().split("\t")));
        }
    }

    private static void read(BlockingQueue<String> jobs) {
        try {
            BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                jobs.add(line);
            }
        } catch (IOException error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(0);
    }

    /** What every job needs is loaded and connected before the first one comes. */
    private static void meet() {
        JobConf conf = new JobConf();
        try (JobClient client = new JobClient(conf)) {
            client.getClusterStatus();
            FileSystem.get(conf).exists(new Path("/"));
        } catch (Exception error) {
            // The job will meet it too, and say so.
        }
    }

    private static int run(String[] words) {
        String[] arguments = new String[words.length];
        for (int i = 0; i < words.length; i++) {
            arguments[i] = URLDecoder.decode(words[i], StandardCharsets.UTF_8);
        }
        try {
            int code = ToolRunner.run(new StreamJob(), arguments);
            if (code != 0) {
                System.err.println("Streaming Command Failed!");
            }
            return code;
        } catch (Throwable error) {
            error.printStackTrace();
            return 1;
        }
    }
}

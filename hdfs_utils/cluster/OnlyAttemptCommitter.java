package gradreduce;

import java.io.IOException;
import org.apache.hadoop.mapred.FileOutputCommitter;
import org.apache.hadoop.mapred.TaskAttemptContext;

/**
 * Commits a task's output where the task has one attempt, within the application master.
 *
 * A task asks the master which of its attempts may commit. Within the master the question comes
 * before it knows that the attempt has ended, and is asked again after a second.
 */
public final class OnlyAttemptCommitter extends FileOutputCommitter {
    @Override
    public boolean needsTaskCommit(TaskAttemptContext context) throws IOException {
        if (super.needsTaskCommit(context)) {
            commitTask(context);
        }
        return false;
    }
}

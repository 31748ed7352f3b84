package store.sleeper.spark;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Sleeper in a Python process of its own, which answers requests about the tables of an instance.
 *
 * Request and answer are a line of JSON each, by the process's standard input and output
 * (sleeper/spark/catalog/answers.py). There is one process for all sessions of this JVM with the
 * same settings. It starts with the first request and again should it end. It ends when there was
 * no request for long, and when its input does, so at the latest with the JVM, however that ends.
 */
final class PythonHelper {

    private static final Map<CaseInsensitiveStringMap, PythonHelper> RUNNING = new ConcurrentHashMap<>();
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int PROTOCOL = 1; // of sleeper/spark/catalog/answers.py
    private static final Set<String> READING = Set.of("tables", "load", "scan");
    private static final int SECONDS_TO_END = 5;
    private static final int ERRORS_KEPT = 4000;

    private final CaseInsensitiveStringMap settings;
    private Process process;
    private OutputStream requests;
    private BufferedReader answers;
    private StringBuffer errors;
    private Thread lastWords;

    private PythonHelper(CaseInsensitiveStringMap settings) {
        this.settings = settings;
    }

    /** The process for a catalog's settings: instance, allow_functions and python. */
    static PythonHelper of(CaseInsensitiveStringMap settings) {
        return RUNNING.computeIfAbsent(settings, PythonHelper::new);
    }

    /** Returns the answer to a request. */
    synchronized JsonNode ask(String call, Map<String, Object> request) throws SleeperRefusal {
        if (process == null || !process.isAlive()) {
            start();
        }
        String line = exchange(call, request);
        // It had nothing to do for long and saw no request, or it was killed and may be asked again.
        if (line == null && (process.exitValue() == 0 || READING.contains(call))) {
            start();
            line = exchange(call, request);
        }
        return answer(line);
    }

    private void start() throws SleeperRefusal {
        String python = SparkInternals.python(settings.get("python"));
        ProcessBuilder builder = new ProcessBuilder(python, "-m", "sleeper.interfaces.spark_catalog");
        builder.environment().put("PYTHONPATH", SparkInternals.pythonPath());
        try {
            process = builder.start();
        } catch (IOException error) {
            throw new SleeperRefusal("MissingExtra", "the catalog cannot start Python: " + error.getMessage()
                    + ". Set spark.pyspark.python, or PYSPARK_PYTHON before Spark starts, to a Python that has Sleeper");
        }
        requests = process.getOutputStream();
        answers = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        errors = new StringBuffer();
        InputStream words = process.getErrorStream();
        StringBuffer kept = errors;
        lastWords = new Thread(() -> keepErrors(words, kept), "sleeper catalog errors");
        lastWords.setDaemon(true);
        lastWords.start();
        Map<String, Object> opening = new HashMap<>();
        opening.put("protocol", PROTOCOL);
        opening.put("instance", settings.get("instance"));
        opening.put("allow_functions", settings.get("allow_functions"));
        try {
            answer(exchange("open", opening));
        } catch (SleeperRefusal refusal) {
            end();
            throw refusal;
        }
    }

    /** Sends a request, and returns the line that answers it; null if the process has ended. */
    private String exchange(String call, Map<String, Object> request) {
        Map<String, Object> whole = new HashMap<>(request);
        whole.put("call", call);
        String line;
        try {
            requests.write((JSON.writeValueAsString(whole) + "\n").getBytes(StandardCharsets.UTF_8));
            requests.flush();
            line = answers.readLine();
        } catch (IOException error) {
            line = null;
        }
        if (line == null) {
            end();
        }
        return line;
    }

    private JsonNode answer(String line) throws SleeperRefusal {
        if (line == null) {
            throw new SleeperRefusal("MissingExtra", "Sleeper's Python process ended. The Python of the driver ("
                    + SparkInternals.python(settings.get("python")) + ") needs the same Sleeper as this jar, and "
                    + "pyspark: set spark.pyspark.python, or PYSPARK_PYTHON before Spark starts. It wrote: " + errors);
        }
        JsonNode answer;
        try {
            answer = JSON.readTree(line);
        } catch (IOException error) {
            end();
            throw new SleeperRefusal("DataDamaged", "Sleeper's Python process answered no JSON: " + line);
        }
        JsonNode error = answer.get("error");
        if (error != null) {
            String kind = error.get("kind").asText();
            if (kind.startsWith("Instance")) {
                end(); // the next request opens the instance that is there then
            }
            throw new SleeperRefusal(kind, error.get("message").asText());
        }
        return answer.get("answer");
    }

    /** Ends the process, which gets time to end by itself if its input or output is closed. */
    private void end() {
        try {
            requests.close();
        } catch (IOException closed) {
            errors.append(closed.getMessage()).append('\n');
        }
        try {
            if (!process.waitFor(SECONDS_TO_END, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
            }
            lastWords.join(1000);
        } catch (InterruptedException interruption) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }

    private static void keepErrors(InputStream stream, StringBuffer kept) {
        try (BufferedReader reader = new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8))) {
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                System.err.println(line); // the driver's log
                kept.append(line).append('\n');
                if (kept.length() > ERRORS_KEPT) {
                    kept.delete(0, kept.length() - ERRORS_KEPT);
                }
            }
        } catch (IOException ended) {
            kept.append(ended.getMessage());
        }
    }
}

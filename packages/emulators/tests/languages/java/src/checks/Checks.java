package checks;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;

/** The checks of a service: each passes unless it throws, and becomes one line of JSON. */
public final class Checks {
    private static final long WITHIN_S = 180;
    private static final int AT_ONCE = 6;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final AtomicInteger LAST = new AtomicInteger();
    private static final List<Check> CHECKS = new ArrayList<>();

    /** The body of a check. */
    public interface Body {
        void run() throws Exception;
    }

    private record Check(String name, Body body) {}

    private Checks() {}

    public static void add(String name, Body body) {
        CHECKS.add(new Check(name, body));
    }

    /** Return a name that no other resource has. */
    public static String unique(String prefix) {
        return prefix + "-" + LAST.incrementAndGet();
    }

    public static void equal(Object expected, Object actual) {
        if (!Objects.deepEquals(expected, actual)) {
            throw new AssertionError("expected " + expected + ", but was " + actual);
        }
    }

    public static void that(boolean condition, Object found) {
        if (!condition) {
            throw new AssertionError("found " + found);
        }
    }

    /** Return the error of an action, which has to be of this class. */
    public static <T extends Throwable> T fails(Class<T> kind, Body action) {
        try {
            action.run();
        } catch (Throwable error) {
            if (kind.isInstance(error)) {
                return kind.cast(error);
            }
            throw new AssertionError("expected " + kind.getSimpleName(), error);
        }
        throw new AssertionError("there was no error");
    }

    /** Wait until a condition holds: a check that waits too long is ended. */
    public static void eventually(Callable<Boolean> condition) throws Exception {
        while (!condition.call()) {
            Thread.sleep(20);
        }
    }

    /** Send a request to the endpoint of an emulator's own, and return the parsed response. */
    public static Map<String, Object> ask(String method, String url, Map<String, ?> body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url))
            .method(method, body == null ? BodyPublishers.noBody() : BodyPublishers.ofString(JSON.writeValueAsString(body)))
            .build();
        HttpResponse<String> response = HTTP.send(request, BodyHandlers.ofString());
        equal(200, response.statusCode());
        @SuppressWarnings("unchecked")
        Map<String, Object> parsed = JSON.readValue(response.body(), Map.class);
        return parsed;
    }

    /** Run every check whose name has these words, some at a time, and end the process. */
    public static void main(String[] arguments) throws Exception {
        String words = arguments.length > 0 ? arguments[0] : "";
        ExecutorService workers = Executors.newFixedThreadPool(AT_ONCE);
        List<Future<?>> running = new ArrayList<>();
        for (Check check : CHECKS) {
            if (check.name().contains(words)) {
                running.add(workers.submit(() -> report(check)));
            }
        }
        for (Future<?> check : running) {
            check.get();
        }
        System.out.flush();
        // The threads of a check that was ended may still wait.
        Runtime.getRuntime().halt(0);
    }

    private static void report(Check check) {
        long began = System.nanoTime();
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("check", check.name());
        line.put("error", error(check.body()));
        line.put("ms", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began));
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static String error(Body body) {
        ExecutorService own = Executors.newSingleThreadExecutor();
        try {
            own.submit(() -> {
                body.run();
                return null;
            }).get(WITHIN_S, TimeUnit.SECONDS);
            return null;
        } catch (ExecutionException error) {
            StringWriter text = new StringWriter();
            error.getCause().printStackTrace(new PrintWriter(text));
            return text.toString();
        } catch (TimeoutException error) {
            return "not over in " + WITHIN_S + " s";
        } catch (InterruptedException error) {
            return error.toString();
        } finally {
            own.shutdownNow();
        }
    }
}

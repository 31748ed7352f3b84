package store.sleeper.spark;

import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import scala.Option;
import scala.collection.immutable.Map$;

/**
 * An AnalysisException with a message of Sleeper.
 *
 * For a table that is not there it is this too, and no NoSuchTableException: Spark would take
 * sleeper.NAME for a file NAME of the data source "sleeper", and say that there is no such format.
 * Of Spark's error classes it has the one that Spark itself asks for, of missing tables.
 */
final class SleeperRefusal extends AnalysisException {

    private static final long serialVersionUID = 1;

    private final String kind;

    /** A refusal of Sleeper in Python; its kind is the name of the error's class there. */
    SleeperRefusal(String kind, String message) {
        super(message, Option.empty(), Option.empty(), Option.empty(), sparkClass(kind), Map$.MODULE$.empty(),
                new QueryContext[0]);
        this.kind = kind;
    }

    private static Option<String> sparkClass(String kind) {
        return kind.equals("TableNotFound") ? Option.apply("TABLE_OR_VIEW_NOT_FOUND") : Option.empty();
    }

    boolean is(String otherKind) {
        return kind.equals(otherKind);
    }

    /** Throws this where the method of Spark's interface declares no exception: write "throw". */
    RuntimeException undeclared() {
        return SleeperRefusal.<RuntimeException>thrown(this);
    }

    /** The same with a new refusal. */
    static RuntimeException of(String message) {
        return new SleeperRefusal("BadRequest", message).undeclared();
    }

    @SuppressWarnings("unchecked")
    private static <E extends Exception> E thrown(Exception error) throws E {
        throw (E) error;
    }
}

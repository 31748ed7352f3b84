package store.sleeper.spark;

import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.EqualNullSafe;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.Not;
import org.apache.spark.sql.sources.Or;
import org.apache.spark.sql.sources.StringStartsWith;

/**
 * Conditions of Spark as JSON: lists such as ["=", "id", 5], ["and", left, right], ["not", part].
 *
 * A value is a number, {"text": ...} or {"bytes": base64}. What has no such form is null, which
 * says nothing about the rows.
 */
final class FilterJson {

    private FilterJson() {
    }

    static List<Object> of(Filter[] filters) {
        List<Object> conditions = new ArrayList<>();
        for (Filter filter : filters) {
            conditions.add(condition(filter));
        }
        return conditions;
    }

    private static Object condition(Filter filter) {
        if (filter instanceof And) {
            return listOf("and", condition(((And) filter).left()), condition(((And) filter).right()));
        }
        if (filter instanceof Or) {
            return listOf("or", condition(((Or) filter).left()), condition(((Or) filter).right()));
        }
        if (filter instanceof Not) {
            return listOf("not", condition(((Not) filter).child()));
        }
        if (filter instanceof EqualTo) {
            return comparison("=", ((EqualTo) filter).attribute(), ((EqualTo) filter).value());
        }
        if (filter instanceof EqualNullSafe) {
            return comparison("=", ((EqualNullSafe) filter).attribute(), ((EqualNullSafe) filter).value());
        }
        if (filter instanceof LessThan) {
            return comparison("<", ((LessThan) filter).attribute(), ((LessThan) filter).value());
        }
        if (filter instanceof LessThanOrEqual) {
            return comparison("<=", ((LessThanOrEqual) filter).attribute(), ((LessThanOrEqual) filter).value());
        }
        if (filter instanceof GreaterThan) {
            return comparison(">", ((GreaterThan) filter).attribute(), ((GreaterThan) filter).value());
        }
        if (filter instanceof GreaterThanOrEqual) {
            return comparison(">=", ((GreaterThanOrEqual) filter).attribute(), ((GreaterThanOrEqual) filter).value());
        }
        if (filter instanceof StringStartsWith) {
            return comparison("prefix", ((StringStartsWith) filter).attribute(), ((StringStartsWith) filter).value());
        }
        if (filter instanceof In) {
            List<Object> values = new ArrayList<>();
            for (Object value : ((In) filter).values()) {
                values.add(value(value));
            }
            String column = SparkInternals.column(((In) filter).attribute());
            return column == null || values.contains(null) ? null : listOf("in", column, values);
        }
        return null;
    }

    private static Object comparison(String operator, String attribute, Object value) {
        Object json = value(value);
        String column = SparkInternals.column(attribute);
        return column == null || json == null ? null : listOf(operator, column, json);
    }

    private static Object value(Object value) {
        if (value instanceof String) {
            return Map.of("text", value);
        }
        if (value instanceof byte[]) {
            return Map.of("bytes", Base64.getEncoder().encodeToString((byte[]) value));
        }
        return value instanceof Integer || value instanceof Long ? value : null;
    }

    private static List<Object> listOf(Object... parts) {
        List<Object> list = new ArrayList<>(); // List.of would refuse null
        for (Object part : parts) {
            list.add(part);
        }
        return list;
    }
}

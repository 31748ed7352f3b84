package store.sleeper.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A read of a table: columns and filters of one query, which are new for each.
 *
 * Sleeper in Python plans it: conditions on row keys choose leaves, and the answer is either the
 * files, which Spark's own Parquet reader reads, or options for the data source "sleeper" where
 * rows must be merged, filtered or aggregated. A stream is always read by the data source.
 */
final class SleeperScan implements SupportsReportStatistics {

    private final SleeperCatalog catalog;
    private final String table;
    private final StructType schema;
    private final Filter[] filters;
    private final CaseInsensitiveStringMap options;
    private final Map<String, Object> request = new HashMap<>();
    private Scan planned;

    private SleeperScan(Builder builder) {
        catalog = builder.catalog;
        table = builder.table;
        schema = builder.schema;
        filters = builder.filters;
        options = builder.options;
        request.put("table", table);
        request.put("version", builder.version);
        request.put("columns", List.of(builder.required.fieldNames()));
        request.put("filters", FilterJson.of(filters));
        request.put("options", options.asCaseSensitiveMap());
        request.put("source", catalog.options(table));
        request.put("s3_scheme", SparkInternals.setting("spark.sleeper.s3.scheme"));
    }

    /** The scan of a batch, planned when Spark first asks about it. */
    private synchronized Scan planned() {
        if (planned == null) {
            JsonNode plan = catalog.ask("scan", request);
            StructType columns = new StructType();
            for (JsonNode column : plan.get("columns")) {
                columns = columns.add(schema.apply(column.asText()));
            }
            Map<String, String> given = new HashMap<>();
            plan.get("options").fields().forEachRemaining(each -> given.put(each.getKey(), each.getValue().asText()));
            CaseInsensitiveStringMap planOptions = new CaseInsensitiveStringMap(given);
            if (plan.get("files").isNull()) {
                planned = SparkInternals.pythonScan(columns, planOptions);
            } else {
                List<String> files = new ArrayList<>();
                plan.get("files").forEach(file -> files.add(file.asText()));
                planned = SparkInternals.parquetScan(schema, columns, files, filters, planOptions);
            }
        }
        return planned;
    }

    @Override
    public StructType readSchema() {
        return planned().readSchema();
    }

    @Override
    public String description() {
        return "sleeper " + planned().description();
    }

    @Override
    public Batch toBatch() {
        return planned().toBatch();
    }

    @Override
    public synchronized MicroBatchStream toMicroBatchStream(String checkpoint) {
        Map<String, String> stream = new HashMap<>(options.asCaseSensitiveMap());
        stream.putAll(catalog.options(table));
        planned = SparkInternals.pythonScan(schema, new CaseInsensitiveStringMap(stream));
        return planned.toMicroBatchStream(checkpoint);
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
        return planned().columnarSupportMode();
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
        return planned == null ? new CustomMetric[0] : planned.supportedCustomMetrics();
    }

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
        return planned == null ? new CustomTaskMetric[0] : planned.reportDriverMetrics();
    }

    @Override
    public Statistics estimateStatistics() {
        return SparkInternals.statistics(planned());
    }

    /** Gathers what a query needs. No filter is evaluated here alone: Spark evaluates all again. */
    static final class Builder implements ScanBuilder, SupportsPushDownRequiredColumns, SupportsPushDownFilters {

        private final SleeperCatalog catalog;
        private final String table;
        private final long version;
        private final StructType schema;
        private final CaseInsensitiveStringMap options;
        private StructType required;
        private Filter[] filters = {};

        Builder(SleeperCatalog catalog, String table, long version, StructType schema,
                CaseInsensitiveStringMap options) {
            this.catalog = catalog;
            this.table = table;
            this.version = version;
            this.schema = schema;
            this.options = options;
            required = schema;
        }

        @Override
        public void pruneColumns(StructType columns) {
            required = columns;
        }

        @Override
        public Filter[] pushFilters(Filter[] conditions) {
            filters = conditions;
            return conditions;
        }

        @Override
        public Filter[] pushedFilters() {
            return new Filter[0];
        }

        @Override
        public Scan build() {
            return new SleeperScan(this);
        }
    }
}

package store.sleeper.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;
import java.util.function.Supplier;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.execution.datasources.DataSource$;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * All that is used of Spark beyond its public interfaces: another version may lack it, and then
 * the error says so. The rest of this package uses public interfaces alone.
 */
final class SparkInternals {

    private SparkInternals() {
    }

    private static <T> T present(String part, Supplier<T> use) {
        try {
            return use.get();
        } catch (LinkageError error) {
            throw SleeperRefusal.of("Sleeper's catalog was made for Spark 4.0 to 4.3; this Spark has another " + part
                    + " (" + error.getMessage() + "). Use Table.to_spark and format(\"sleeper\") with this Spark");
        }
    }

    // ---------------------------------------------------------------- the data source in Python

    private static Table pythonTable(StructType schema, CaseInsensitiveStringMap options) {
        Option<TableProvider> provider = present("list of data sources",
                () -> DataSource$.MODULE$.lookupDataSourceV2("sleeper", SQLConf.get()));
        if (provider.isEmpty()) {
            throw SleeperRefusal.of("Spark does not find the data source 'sleeper': the Python on the driver's "
                    + "machine has no Sleeper. Set PYSPARK_PYTHON to one that has, before Spark starts");
        }
        return provider.get().getTable(schema, new Transform[0], options.asCaseSensitiveMap());
    }

    /** A read by the data source. */
    static Scan pythonScan(StructType schema, CaseInsensitiveStringMap options) {
        return ((SupportsRead) pythonTable(schema, options)).newScanBuilder(options).build();
    }

    /** A write by the data source, with other options than Spark was given. */
    static Write pythonWrite(LogicalWriteInfo info, CaseInsensitiveStringMap options) {
        LogicalWriteInfo ours = new LogicalWriteInfo() {
            @Override
            public CaseInsensitiveStringMap options() {
                return options;
            }

            @Override
            public String queryId() {
                return info.queryId();
            }

            @Override
            public StructType schema() {
                return info.schema();
            }
        };
        return ((SupportsWrite) pythonTable(info.schema(), options)).newWriteBuilder(ours).build();
    }

    // ---------------------------------------------------------------- Spark's Parquet reader

    /** A read of files by Spark's Parquet reader, with the filters that it may use to skip row groups. */
    static Scan parquetScan(StructType schema, StructType columns, List<String> files, Filter[] filters,
            CaseInsensitiveStringMap options) {
        return present("Parquet reader", () -> {
            ParquetTable table = new ParquetTable("sleeper", SparkSession.active(), options, PythonUtils.toSeq(files),
                    Option.apply(schema), ParquetFileFormat.class);
            ParquetScanBuilder builder = table.newScanBuilder(options);
            builder.pushedDataFilters_$eq(builder.pushDataFilters(withoutNaN(filters, schema)));
            builder.pruneColumns(columns);
            return builder.build();
        });
    }

    /**
     * Filters that may skip a row group. Statistics leave NaN out, which is greater than every
     * number to Spark, so a filter on a column that may have it would lose rows.
     */
    private static Filter[] withoutNaN(Filter[] filters, StructType schema) {
        List<Filter> usable = new ArrayList<>();
        for (Filter filter : filters) {
            boolean safe = true;
            for (String attribute : filter.references()) {
                safe &= hasNoNaN(schema, column(attribute));
            }
            if (safe) {
                usable.add(filter);
            }
        }
        return usable.toArray(new Filter[0]);
    }

    private static boolean hasNoNaN(StructType schema, String column) {
        for (StructField field : schema.fields()) {
            if (field.name().equals(column)) { // never, if it is null
                DataType type = field.dataType();
                return !(type instanceof FloatType || type instanceof DoubleType || type instanceof ArrayType);
            }
        }
        return false;
    }

    /** What a scan says of its size; nothing, for one that says nothing. */
    static Statistics statistics(Scan scan) {
        if (scan instanceof SupportsReportStatistics) {
            return ((SupportsReportStatistics) scan).estimateStatistics();
        }
        return new Statistics() {
            @Override
            public OptionalLong sizeInBytes() {
                return OptionalLong.empty();
            }

            @Override
            public OptionalLong numRows() {
                return OptionalLong.empty();
            }
        };
    }

    /** The column that a filter names; null for a field of a struct, which Spark writes with a dot. */
    static String column(String attribute) {
        if (!attribute.startsWith("`")) { // Spark writes odd names, with dots too, in backquotes
            return attribute.contains(".") ? null : attribute;
        }
        String name = attribute.substring(1, attribute.length() - 1);
        return name.replace("``", "").contains("`") ? null : name.replace("``", "`");
    }

    // ---------------------------------------------------------------- settings

    /** A setting of the session; null where it has none. */
    static String setting(String name) {
        return SQLConf.get().getConfString(name, null);
    }

    /** The Python that Spark starts on the driver's machine, unless the catalog names another. */
    static String python(String named) {
        String[] choices = {named, setting("spark.pyspark.driver.python"), setting("spark.pyspark.python"),
            System.getenv("PYSPARK_DRIVER_PYTHON"), System.getenv("PYSPARK_PYTHON")};
        for (String choice : choices) {
            if (choice != null && !choice.isBlank()) {
                return choice;
            }
        }
        return "python3";
    }

    /** Where that Python finds Spark's own pyspark, where it has none installed. */
    static String pythonPath() {
        List<String> paths = new ArrayList<>();
        String given = System.getenv("PYTHONPATH");
        if (given != null && !given.isBlank()) {
            paths.add(given);
        }
        String ofSpark = present("PythonUtils", PythonUtils::sparkPythonPath);
        if (!ofSpark.isBlank()) {
            paths.add(ofSpark);
        }
        return String.join(":", paths);
    }
}

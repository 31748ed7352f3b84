package store.sleeper.spark;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwrite;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One version of a table. What a query reads twice is the same version, and a DataFrame keeps the
 * version of the moment when it was made. Rows are written by the data source "sleeper".
 */
class SleeperTable implements SupportsRead, SupportsWrite, SupportsRowLevelOperations {

    private final SleeperCatalog catalog;
    private final String table;
    private final long version;
    private final Column[] columns;
    private final StructType schema;
    private final StructType shownSchema; // the same with comments: Spark 4.0 describes this one, later ones columns
    private final Map<String, String> properties = new TreeMap<>();

    /** A table as Sleeper's answer to "load" describes it. */
    SleeperTable(SleeperCatalog catalog, JsonNode description) {
        this.catalog = catalog;
        table = description.get("table").asText();
        version = description.get("version").asLong();
        schema = (StructType) DataType.fromJson(description.get("schema").toString());
        JsonNode comments = description.get("comments");
        StructField[] fields = schema.fields();
        StructField[] commented = new StructField[fields.length];
        columns = new Column[fields.length];
        for (int i = 0; i < fields.length; i++) {
            JsonNode comment = comments.get(fields[i].name());
            String text = comment == null ? null : comment.asText();
            columns[i] = Column.create(fields[i].name(), fields[i].dataType(), fields[i].nullable(), text, null);
            commented[i] = text == null ? fields[i] : fields[i].withComment(text);
        }
        shownSchema = new StructType(commented);
        description.get("properties").fields()
                .forEachRemaining(each -> properties.put(each.getKey(), each.getValue().asText()));
    }

    @Override
    public String name() {
        return catalog.name() + "." + table;
    }

    @Override
    public StructType schema() {
        return shownSchema;
    }

    @Override
    public Column[] columns() {
        return columns;
    }

    @Override
    public Map<String, String> properties() {
        return properties;
    }

    @Override
    public Set<TableCapability> capabilities() {
        // Overwriting is among them so that Spark asks the writer, which says what to do instead.
        return Set.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ, TableCapability.BATCH_WRITE,
                TableCapability.STREAMING_WRITE, TableCapability.TRUNCATE, TableCapability.OVERWRITE_BY_FILTER,
                TableCapability.OVERWRITE_DYNAMIC);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new SleeperScan.Builder(catalog, table, version, schema, options);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        return new Writer(info);
    }

    @Override
    public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
        throw SleeperRefusal.of("rows of a table of Sleeper are added and read; " + info.command()
                + " is not possible: a filter, an age or an aggregation of the table removes or unites rows");
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof SleeperTable && identity().equals(((SleeperTable) other).identity());
    }

    @Override
    public int hashCode() {
        return identity().hashCode();
    }

    private Map<String, String> identity() {
        Map<String, String> identity = new HashMap<>(catalog.options(table));
        identity.put("version", Long.toString(version));
        return identity;
    }

    /** A table that was just made for rows; should they fail, it goes again. */
    static final class New extends SleeperTable implements StagedTable {

        New(SleeperCatalog catalog, JsonNode description) {
            super(catalog, description);
        }

        @Override
        public void commitStagedChanges() {
            // The table and its rows are there already.
        }

        @Override
        public void abortStagedChanges() {
            super.catalog.ask("drop", Map.of("table", super.table));
        }
    }

    /** Appends, by the data source; refuses to overwrite. */
    private final class Writer implements WriteBuilder, SupportsOverwrite, SupportsDynamicOverwrite {

        private final LogicalWriteInfo info;

        Writer(LogicalWriteInfo info) {
            this.info = info;
        }

        @Override
        public Write build() {
            Map<String, String> options = new HashMap<>(info.options().asCaseSensitiveMap());
            options.putAll(catalog.options(table));
            return SparkInternals.pythonWrite(info, new CaseInsensitiveStringMap(options));
        }

        @Override
        public WriteBuilder overwrite(Filter[] filters) {
            throw noOverwriting();
        }

        @Override
        public WriteBuilder overwriteDynamicPartitions() {
            throw noOverwriting();
        }

        @Override
        public WriteBuilder truncate() {
            throw noOverwriting();
        }

        private RuntimeException noOverwriting() {
            return SleeperRefusal.of("a table of Sleeper is added to, never overwritten: append to '" + table
                    + "'. Table.reinitialise removes all rows");
        }
    }
}

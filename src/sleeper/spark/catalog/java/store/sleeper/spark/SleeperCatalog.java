package store.sleeper.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The tables of one Sleeper instance as a catalog of Spark.
 *
 * <pre>
 * spark.sql.catalog.sleeper            store.sleeper.spark.SleeperCatalog
 * spark.sql.catalog.sleeper.instance   a folder or URL
 * </pre>
 *
 * Everything about tables is asked of Sleeper in Python ({@link PythonHelper}). Rows are read by
 * Spark's own Parquet reader or by the data source "sleeper" ({@link SleeperScan}), and written by
 * that data source ({@link SleeperTable}). Only the driver needs these classes.
 *
 * It stages tables so that REPLACE TABLE can be refused before anything is dropped: Spark drops
 * a table of a catalog that does not stage.
 */
public final class SleeperCatalog implements StagingTableCatalog, SupportsNamespaces {

    private static final Set<String> SETTINGS = Set.of("instance", "allow_functions", "python");
    private static final String[] NO_NAMESPACE = {};

    private String name;
    private CaseInsensitiveStringMap settings;

    @Override
    public void initialize(String name, CaseInsensitiveStringMap settings) {
        for (String setting : settings.keySet()) {
            if (!SETTINGS.contains(setting)) {
                throw SleeperRefusal.of("there is no setting spark.sql.catalog." + name + "." + setting
                        + ": a catalog of Sleeper has instance, allow_functions and python");
            }
        }
        if (settings.getOrDefault("instance", "").isBlank()) {
            throw SleeperRefusal.of("the catalog '" + name + "' is of no instance yet: set spark.sql.catalog."
                    + name + ".instance to the instance's folder or URL");
        }
        this.name = name;
        this.settings = settings;
    }

    @Override
    public String name() {
        return name;
    }

    // ---------------------------------------------------------------- tables

    @Override
    public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
        checkNamespace(namespace);
        List<Identifier> tables = new ArrayList<>();
        for (JsonNode table : ask("tables", Map.of())) {
            tables.add(Identifier.of(NO_NAMESPACE, table.asText()));
        }
        return tables.toArray(new Identifier[0]);
    }

    @Override
    public Table loadTable(Identifier table) throws NoSuchTableException {
        return load(table, Map.of());
    }

    @Override
    public Table loadTable(Identifier table, String version) throws NoSuchTableException {
        return load(table, Map.of("version", version));
    }

    @Override
    public Table loadTable(Identifier table, long microseconds) throws NoSuchTableException {
        return load(table, Map.of("microseconds", microseconds));
    }

    private SleeperTable load(Identifier table, Map<String, Object> version) throws NoSuchTableException {
        if (table.namespace().length > 0) {
            throw new NoSuchTableException(table);
        }
        Map<String, Object> request = new HashMap<>(version);
        request.put("table", table.name());
        return new SleeperTable(this, ask("load", request));
    }

    @Override
    public boolean tableExists(Identifier table) {
        try {
            return table.namespace().length == 0 && !python().ask("load", Map.of("table", table.name())).isNull();
        } catch (SleeperRefusal refusal) {
            if (refusal.is("TableNotFound")) {
                return false;
            }
            throw refusal.undeclared();
        }
    }

    @Override
    public Table createTable(Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        return new SleeperTable(this, create(table, columns, partitions, properties));
    }

    @Override
    public Table createTable(
            Identifier table, StructType schema, Transform[] partitions, Map<String, String> properties) {
        throw new UnsupportedOperationException("Spark calls the method with columns");
    }

    private JsonNode create(
            Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        checkNamespace(table.namespace());
        if (partitions.length > 0) {
            throw SleeperRefusal.of("a table of Sleeper is partitioned by its row keys: leave PARTITIONED BY and "
                    + "CLUSTERED BY out, and name the keys, as in TBLPROPERTIES ('row_keys' = 'id')");
        }
        StructType schema = new StructType();
        for (Column column : columns) {
            schema = schema.add(column.name(), column.dataType(), column.nullable());
        }
        try {
            return python().ask("create", Map.of("table", table.name(), "schema", schema.json(), "properties", properties));
        } catch (SleeperRefusal refusal) {
            if (refusal.is("TableAlreadyExists")) {
                throw new TableAlreadyExistsException(table);
            }
            throw refusal.undeclared();
        }
    }

    @Override
    public boolean dropTable(Identifier table) {
        return table.namespace().length == 0 && ask("drop", Map.of("table", table.name())).asBoolean();
    }

    @Override
    public void renameTable(Identifier table, Identifier renamed)
            throws NoSuchTableException, TableAlreadyExistsException {
        if (table.namespace().length > 0) {
            throw new NoSuchTableException(table);
        }
        if (renamed.namespace().length > 0 && !String.join(".", renamed.namespace()).equals(name)) {
            throw SleeperRefusal.of("a table stays in its catalog: rename it to a name without dots");
        }
        try {
            python().ask("rename", Map.of("table", table.name(), "to", renamed.name()));
        } catch (SleeperRefusal refusal) {
            if (refusal.is("TableNotFound")) {
                throw new NoSuchTableException(table);
            }
            if (refusal.is("TableAlreadyExists")) {
                throw new TableAlreadyExistsException(renamed);
            }
            throw refusal.undeclared();
        }
    }

    @Override
    public Table alterTable(Identifier table, TableChange... changes) {
        throw SleeperRefusal.of("ALTER TABLE changes nothing but the name of a table of Sleeper (RENAME TO); "
                + "properties are set by Table.set_properties or `sleeper table set`");
    }

    // ---------------------------------------------------------------- staged tables

    @Override
    public StagedTable stageCreate(
            Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        return new SleeperTable.New(this, create(table, columns, partitions, properties));
    }

    @Override
    public StagedTable stageReplace(
            Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties) {
        throw noReplacement(table);
    }

    @Override
    public StagedTable stageCreateOrReplace(
            Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties) {
        throw noReplacement(table);
    }

    private RuntimeException noReplacement(Identifier table) {
        return SleeperRefusal.of("a table of Sleeper is not replaced or overwritten: append to '" + table.name()
                + "', or remove it first by DROP TABLE, or all its rows by Table.reinitialise");
    }

    // ---------------------------------------------------------------- namespaces

    @Override
    public String[][] listNamespaces() {
        return new String[0][];
    }

    @Override
    public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
        checkNamespace(namespace);
        return new String[0][];
    }

    @Override
    public boolean namespaceExists(String[] namespace) {
        return namespace.length == 0;
    }

    @Override
    public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
        checkNamespace(namespace);
        return Map.of("location", settings.get("instance"));
    }

    @Override
    public void createNamespace(String[] namespace, Map<String, String> metadata) {
        throw noNamespaces();
    }

    @Override
    public void alterNamespace(String[] namespace, NamespaceChange... changes) {
        throw noNamespaces();
    }

    @Override
    public boolean dropNamespace(String[] namespace, boolean cascade) {
        throw noNamespaces();
    }

    private RuntimeException noNamespaces() {
        return SleeperRefusal.of("an instance of Sleeper has tables and no namespaces: a table is " + name + ".NAME");
    }

    private void checkNamespace(String[] namespace) throws NoSuchNamespaceException {
        if (namespace.length > 0) {
            throw new NoSuchNamespaceException(namespace);
        }
    }

    // ---------------------------------------------------------------- Sleeper in Python

    private PythonHelper python() {
        return PythonHelper.of(settings);
    }

    /** Returns the answer of Sleeper in Python to a request, and throws what it refuses. */
    JsonNode ask(String call, Map<String, Object> request) {
        try {
            return python().ask(call, request);
        } catch (SleeperRefusal refusal) {
            throw refusal.undeclared();
        }
    }

    /** The options by which the data source finds a table of this instance. */
    Map<String, String> options(String table) {
        Map<String, String> options = new HashMap<>();
        options.put("instance", settings.get("instance"));
        options.put("table", table);
        if (settings.containsKey("allow_functions")) {
            options.put("allow_functions", settings.get("allow_functions"));
        }
        return options;
    }
}

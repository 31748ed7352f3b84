//! Runs upstream's compaction without its Java: `side_by_side compact OUTPUT INPUT...`, all of them URLs.
//!
//! The table has the row key `key` and the sort key `ts`, and is one partition. Settings are the defaults
//! that upstream's Java hands over; ROW_GROUP (rows) and PAGE_BYTES change two of them. SUM is what an
//! aggregation is configured as, AGE_OFF a filter.

use std::{collections::HashMap, env, sync::Arc};

use color_eyre::eyre::{Result, bail};
use sleeper_core::{
    ColRange, CommonConfigBuilder, OutputType, PartitionBound, SleeperParquetOptions, SleeperRegion,
    filter_aggregation_config::{aggregate::Aggregate, filter::Filter},
    run_compaction,
    sleeper_context::SleeperContext,
};
use url::Url;

fn number(name: &str, default: usize) -> Result<usize> {
    Ok(env::var(name).map_or(Ok(default), |text| text.parse())?)
}

#[tokio::main(flavor = "multi_thread")]
async fn main() -> Result<()> {
    let given: Vec<String> = env::args().skip(1).collect();
    let [verb, output, inputs @ ..] = given.as_slice() else {
        bail!("side_by_side compact OUTPUT INPUT...");
    };
    if verb != "compact" {
        bail!("there is no {verb}: side_by_side compact OUTPUT INPUT...");
    }
    let layout = SleeperParquetOptions {
        max_page_size: number("PAGE_BYTES", 128 * 1024)?,
        max_row_group_size: number("ROW_GROUP", 100_000)?,
        column_truncate_length: 128,
        stats_truncate_length: 2_147_483_647,
        compression: "zstd".into(),
        writer_version: "v2".into(),
        dict_enc_row_keys: false,
        dict_enc_sort_keys: false,
        dict_enc_values: false,
    };
    let everything = ColRange {
        lower: PartitionBound::String(""),
        lower_inclusive: true,
        upper: PartitionBound::Unbounded,
        upper_inclusive: false,
    };
    let job = CommonConfigBuilder::new()
        .input_files(inputs.iter().map(|each| Url::parse(each)).collect::<Result<_, _>>()?)
        .input_files_sorted(true)
        .row_key_cols(vec!["key".into()])
        .sort_key_cols(vec!["ts".into()])
        .region(SleeperRegion::new(HashMap::from([("key".into(), everything)])))
        .output(OutputType::File {
            output_file: Url::parse(output)?,
            write_sketch_file: true,
            opts: layout,
        })
        .aggregates(Aggregate::parse_config(&env::var("SUM").unwrap_or_default())?)
        .filters(Filter::parse_config(&env::var("AGE_OFF").unwrap_or_default())?)
        .build()?;
    let done = run_compaction(&job, &Arc::new(SleeperContext::default()), None).await?;
    println!("{{\"read\": {}, \"written\": {}}}", done.rows_read, done.rows_written);
    Ok(())
}

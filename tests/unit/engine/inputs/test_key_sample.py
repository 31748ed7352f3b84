"""A sample of row keys from input files: as even as the rows are, whatever their order."""

from __future__ import annotations

from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.engine.arrow_schema import to_arrow
from sleeper.engine.inputs.input_files import InputFiles, find_files
from sleeper.engine.inputs.key_sample import ReadBudget, sample_files
from sleeper.errors import InputNotFound, InputSchemaMismatch
from sleeper.model.schema import Field, Primitive, Schema

NUMBERS = Schema(
    row_keys=(Field("k", Primitive.LONG),), values=(Field("v", Primitive.LONG, nullable=True),)
)
PAIRS = Schema(row_keys=(Field("a", Primitive.LONG), Field("b", Primitive.STRING)))
SMALL = ReadBudget(mixed_rows=5_000, ordered_rows=10**9)


def shuffled(count, seed=0):
    """The numbers from 0, in no order."""
    return np.random.default_rng(seed).permutation(count)


def write(folder, *files, rows_per_group=10_000, **more):
    """Parquet files of these columns, or of `k` alone."""
    for place, columns in enumerate(files):
        named = columns if isinstance(columns, dict) else {"k": columns}
        path = folder / f"{place:03}.parquet"
        pq.write_table(pa.table(named), path, row_group_size=rows_per_group, **more)
    return folder


def sampled(folder, schema=NUMBERS, *, rows_wanted=1_000, budget=SMALL):
    """The sample of a folder."""
    arrow_schema = to_arrow(schema)
    source = InputFiles(find_files([folder]), arrow_schema)
    return sample_files(source, schema, arrow_schema, rows_wanted=rows_wanted, budget=budget)


def keys(sample, name="k"):
    return sample.rows[name].to_numpy()


def check_even(sample, count, *, tenths=10, tolerance=0.15):
    """Each tenth of the keys 0 to `count` has its share of the sample."""
    shares = np.histogram(keys(sample), bins=tenths, range=(0, count))[0] / sample.rows.num_rows
    assert abs(shares * tenths - 1).max() < tolerance


class TestSmallInputs:
    """Inputs that are read whole."""

    def test_a_small_input_is_its_own_sample(self, tmp_path):
        """Every row is taken while they are fewer than wanted, so quantiles are exact."""
        sample = sampled(write(tmp_path, [3, 1], [2]))

        assert sorted(keys(sample)) == [1, 2, 3]
        assert sample.row_count == 3
        assert sample.rows.schema == pa.schema([to_arrow(NUMBERS).field("k")])

    def test_more_rows_than_wanted_are_thinned_at_equal_distances(self, tmp_path):
        """Rows in key order give their quantiles almost exactly."""
        sample = sampled(write(tmp_path, np.arange(4_000)), rows_wanted=900)

        assert 900 <= sample.rows.num_rows <= 1_800
        assert set(np.diff(keys(sample))) == {4}
        assert sample.row_count == 4_000

    def test_all_row_keys_stay_together(self, tmp_path):
        """A composite key is sampled row by row; other columns are not read."""
        rows = {"b": ["x", "y"], "a": [1, 2]}

        sample = sampled(write(tmp_path, rows), PAIRS)

        assert sample.rows.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]

    def test_columns_come_in_the_tables_types(self, tmp_path):
        """Files may differ, as long as the cast is exact."""
        files = [{"k": pa.array([1], pa.int16())}, {"k": pa.array([2.0])}]

        sample = sampled(write(tmp_path, *files))

        assert sorted(keys(sample)) == [1, 2]

    def test_rows_without_a_key_are_left_out_and_not_counted(self, tmp_path):
        """They have no leaf."""
        sample = sampled(write(tmp_path, [None, 1, None, 2]))

        assert keys(sample).tolist() == [1, 2]
        assert sample.row_count == 2

    def test_no_rows_give_an_empty_sample(self, tmp_path):
        """It still has its columns."""
        sample = sampled(write(tmp_path, pa.array([], pa.int64())))

        assert (sample.rows.num_rows, sample.row_count) == (0, 0)
        assert sample.rows.column_names == ["k"]

    def test_a_file_whose_key_is_of_another_type_is_named(self, tmp_path):
        """Nothing is guessed."""
        folder = write(tmp_path, [1], ["one"])

        with pytest.raises(InputSchemaMismatch, match=r"001\.parquet"):
            sampled(folder)

    def test_a_value_that_does_not_fit_names_its_file(self, tmp_path):
        """As ingest would refuse it (ING-14)."""
        folder = write(tmp_path, [1], [1.5])

        with pytest.raises(InputSchemaMismatch, match=r"001\.parquet"):
            sampled(folder)

    def test_a_file_without_the_key_is_named(self, tmp_path):
        """It could not be imported either."""
        folder = write(tmp_path, [1], {"v": [1]})

        with pytest.raises(InputSchemaMismatch, match=r"001\.parquet.*'k'"):
            sampled(folder)

    def test_a_file_that_is_gone(self, tmp_path):
        """Found out when it is read."""
        folder = write(tmp_path, [1])
        arrow_schema = to_arrow(NUMBERS)
        source = InputFiles(find_files([folder]), arrow_schema)
        source.row_groups()
        (folder / "000.parquet").unlink()

        with pytest.raises(InputNotFound):
            sample_files(source, NUMBERS, arrow_schema, rows_wanted=10)


class TestRowsInNoOrder:
    """Inputs whose first rows tell of all rows."""

    def test_only_the_first_rows_of_each_row_group_are_read(self, tmp_path):
        """The last 7,000 rows of each have a key of their own, which the sample has not seen."""
        tail = np.full(7_000, 20_000)
        first = [np.concatenate([shuffled(20_000, seed)[:3_000], tail]) for seed in range(4)]

        sample = sampled(write(tmp_path, *first))

        assert keys(sample).max() < 20_000
        assert sample.row_count == 40_000
        assert sample.rows.num_rows == 1_000

    def test_row_groups_count_by_their_rows(self, tmp_path):
        """A file three times as long has three times as many rows in the sample."""
        small, large = shuffled(5_000, 1) * 2, shuffled(15_000, 2) * 2 + 1

        sample = sampled(write(tmp_path, small, large, rows_per_group=20_000))

        assert np.bincount(keys(sample) % 2).tolist() == [250, 750]

    def test_the_sample_is_as_even_as_the_rows(self, tmp_path):
        """Tenths of the keys have tenths of the sample."""
        parts = np.array_split(shuffled(60_000), 6)

        check_even(sampled(write(tmp_path, *parts), rows_wanted=4_000), 60_000)

    def test_the_same_files_give_the_same_sample(self, tmp_path):
        """No chance is involved, so a job that is run again plans the same splits."""
        folder = write(tmp_path, shuffled(40_000))

        assert sampled(folder).rows == sampled(folder).rows

    def test_of_many_row_groups_some_are_read_evenly(self, tmp_path):
        """Every second of eight, when four may be looked into."""
        parts = np.array_split(shuffled(24_000), 8)
        budget = ReadBudget(mixed_rows=20_000, ordered_rows=10**9, reads=4)
        folder = write(tmp_path, *({"k": part * 8 + n} for n, part in enumerate(parts)))

        sample = sampled(folder, budget=budget)

        assert len(np.unique(keys(sample) % 8)) == 4
        assert sample.row_count == 24_000

    def test_rows_without_a_key_are_estimated(self, tmp_path):
        """Half of the sampled rows have none, so half of all rows."""
        values = pa.array(shuffled(40_000)).to_pylist()
        mixed = [value if value % 2 else None for value in values]

        sample = sampled(write(tmp_path, pa.array(mixed, pa.int64())))

        assert sample.row_count == pytest.approx(20_000, rel=0.1)
        assert not sample.rows["k"].null_count

    def test_one_key_in_a_row_group_is_no_order(self, tmp_path):
        """Its first rows tell all there is, if the statistics say so."""
        budget = ReadBudget(mixed_rows=5_000, ordered_rows=1)
        ones = np.ones(20_000, np.int64)

        sample = sampled(write(tmp_path, ones, ones, rows_per_group=20_000), budget=budget)

        assert np.bincount(keys(sample)).tolist() == [0, 1_000]

    def test_files_without_statistics_are_taken_for_unordered(self, tmp_path):
        """Their first rows are looked at all the same."""
        parts = np.array_split(shuffled(60_000), 6)
        folder = write(tmp_path, *parts, write_statistics=False)

        check_even(sampled(folder, rows_wanted=4_000), 60_000)

    def test_long_keys_make_a_smaller_sample(self, tmp_path):
        """What is kept is bounded in bytes, and still even."""
        names = Schema(row_keys=(Field("k", Primitive.STRING),))
        long = [f"{value:05}" * 100 for value in shuffled(20_000)]
        budget = ReadBudget(mixed_rows=10_000, sample_bytes=200_000)

        sample = sampled(write(tmp_path, long), names, rows_wanted=3_000, budget=budget)

        assert 100 < sample.rows.num_rows <= 400
        assert sample.row_count == 20_000


class TestRowsInSomeOrder:
    """Inputs whose first rows would mislead."""

    @pytest.mark.parametrize(
        "arrange",
        [
            np.sort,
            lambda part: np.sort(part)[::-1],
            lambda part: np.concatenate([np.sort(run) for run in np.array_split(part, 4)]),
            lambda part: part[np.argsort(part + shuffled(len(part), 9) * 2)],
        ],
        ids=["ascending", "descending", "runs", "a trend"],
    )
    @pytest.mark.parametrize("statistics", [True, False], ids=["with statistics", "without"])
    def test_files_sorted_by_themselves_are_read_whole(self, tmp_path, arrange, statistics):
        """Each file has keys of all sizes, but its first rows have not."""
        parts = [arrange(part) for part in np.array_split(shuffled(60_000), 6)]
        folder = write(tmp_path, *parts, rows_per_group=20_000, write_statistics=statistics)

        check_even(sampled(folder, rows_wanted=4_000), 60_000)

    def test_a_drift_far_smaller_than_the_noise_is_noticed(self, tmp_path):
        """Keys that rise on the whole, as clocks do, though each row may come far too late."""
        drift = np.arange(10_000) * 3
        folder = write(tmp_path, *(drift + shuffled(30_000, seed)[:10_000] for seed in range(6)))

        assert keys(sampled(folder)).mean() == pytest.approx(30_000, rel=0.05)

    def test_rows_gathered_by_key_are_read_whole(self, tmp_path):
        """Blocks of one key each, the blocks in no order."""
        blocks = [np.repeat(shuffled(40, seed), 500) for seed in range(3)]

        sample = sampled(write(tmp_path, *blocks, rows_per_group=20_000))

        shares = np.bincount(keys(sample), minlength=40)
        assert shares.min() * 2 > shares.max()

    def test_one_key_at_the_beginning_does_not_stand_for_all(self, tmp_path):
        """Rows that are all alike tell nothing of others, unless the statistics say so."""
        values = np.concatenate([np.zeros(5_000, np.int64), 1 + shuffled(15_000)])

        sample = sampled(write(tmp_path, values, rows_per_group=20_000))

        assert np.count_nonzero(keys(sample)) == 750

    def test_sorted_input_is_read_whole(self, tmp_path):
        """Row groups that follow each other in key order: all keys count, at equal distances."""
        parts = np.array_split(np.arange(100_000), 4)

        sample = sampled(write(tmp_path, *parts))

        assert set(np.diff(keys(sample))) == {64}

    def test_sorted_input_beyond_the_budget_is_read_in_part(self, tmp_path):
        """The first rows of every row group: its own rows are the error, and no more."""
        budget = ReadBudget(mixed_rows=5_000, ordered_rows=20_000)

        sample = sampled(write(tmp_path, np.arange(100_000), rows_per_group=5_000), budget=budget)

        assert np.ptp(np.bincount(keys(sample) // 5_000, minlength=20)) <= 1
        assert (keys(sample) % 5_000).max() < 1_000
        assert sample.row_count == 100_000

    def test_files_sorted_by_themselves_beyond_the_budget(self, tmp_path):
        """Some are read whole and stand for the others."""
        parts = [np.sort(part) * 10 for part in np.array_split(shuffled(100_000), 10)]
        budget = ReadBudget(mixed_rows=20_000, ordered_rows=35_000)
        folder = write(tmp_path, *(part + place for place, part in enumerate(parts)))

        sample = sampled(folder, rows_wanted=4_000, budget=budget)

        check_even(sample, 1_000_000)
        assert len(np.unique(keys(sample) % 10)) == 4
        assert (sample.rows.num_rows, sample.row_count) == (4_000, 100_000)

    def test_one_row_group_larger_than_the_budget_is_read_all_the_same(self, tmp_path):
        """Nothing else could be said about it."""
        budget = ReadBudget(mixed_rows=5_000, ordered_rows=5_000)

        sample = sampled(write(tmp_path, np.arange(10_000)), budget=budget)

        check_even(sample, 10_000)


class TestFilesOfDifferentTypes:
    """Statistics of one file may not compare with those of another."""

    def test_they_are_sampled_as_if_there_were_none(self, tmp_path):
        """Text and bytes are no order together, but text goes into a column of bytes."""
        blobs = Schema(row_keys=(Field("k", Primitive.BYTES),))
        texts = [f"{value:05}" for value in shuffled(10_000)]
        raw = [text.encode() for text in texts]

        sample = sampled(write(tmp_path, texts, raw), blobs)

        assert sample.rows.schema.field("k").type == pa.binary()
        assert sample.rows.num_rows == 1_000

    def test_dates(self, tmp_path):
        """Keys need no arithmetic, only an order."""
        days = Schema(row_keys=(Field("k", Primitive.DATE),))
        some = [date.fromordinal(700_000 + int(n)) for n in shuffled(20_000)]

        sample = sampled(write(tmp_path, some), days)

        assert sample.rows.num_rows == 1_000


class Elsewhere:
    """Files of a folder, by URLs of another machine."""

    def __init__(self, folder):
        self._folder = folder

    def find(self, url):
        """All of them."""
        return [f"{url}/{path.name}" for path in sorted(self._folder.iterdir())]

    def open(self, url):
        """One of them."""
        return (self._folder / url.rsplit("/", 1)[1]).open("rb")


@pytest.mark.parametrize("arrange", [np.array, np.sort], ids=["in no order", "sorted"])
def test_files_by_url_are_sampled_as_local_ones(tmp_path, arrange):
    """Both ways of reading open them through the store that they were found with."""
    folder = write(tmp_path, arrange(shuffled(40_000)))
    remote, arrow_schema = Elsewhere(folder), to_arrow(NUMBERS)
    source = InputFiles(find_files(["far://away"], remote), arrow_schema, remote)

    sample = sample_files(
        source, NUMBERS, arrow_schema, rows_wanted=1_000, remote=remote, budget=SMALL
    )

    assert sample.rows == sampled(folder).rows


class TestManyOrderedRowGroups:
    """Row groups that follow each other and are more than are to be read."""

    def test_are_sampled_by_their_statistics(self, tmp_path):
        """
        Given ordered row groups of different sizes, more than may be read, when they are sampled,
        then their least keys stand for their rows: each as often as it has rows.
        """
        small, large = np.arange(0, 10_000), np.arange(10_000, 100_000)
        folder = tmp_path / "in"
        folder.mkdir()
        pq.write_table(pa.table({"k": small}), folder / "a.parquet", row_group_size=100)
        pq.write_table(pa.table({"k": large}), folder / "b.parquet", row_group_size=900)
        budget = ReadBudget(mixed_rows=100, ordered_reads=50)

        sample = sampled(folder, budget=budget)

        assert sample.row_count == 100_000
        assert {key % 100 for key in keys(sample)} == {0}
        check_even(sample, 100_000)

    def test_with_two_keys_are_read_here_and_there(self, tmp_path):
        """Statistics of two columns say nothing of pairs, so some row groups are read."""
        numbers = np.arange(60_000)
        folder = write(
            tmp_path,
            {"a": numbers, "b": [f"{n % 7}" for n in numbers]},
            rows_per_group=300,
        )
        budget = ReadBudget(mixed_rows=100, ordered_reads=40)

        sample = sampled(folder, PAIRS, budget=budget)

        assert sample.row_count == 60_000
        assert {*sample.rows["b"].to_pylist()} == {f"{n}" for n in range(7)}
        assert np.histogram(keys(sample, "a"), bins=5, range=(0, 60_000))[0].min() > 0

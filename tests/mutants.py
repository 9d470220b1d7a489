"""Bugs that the tests must find: :mod:`test_mutants` plants one after the other."""

from __future__ import annotations

from mutation import Mutant

_DEVICE = "strategies/cuda/device/"
_LOGITS = "tests/test_sum_logits.py::"


def _kernel(name: str, file: str, old: str, new: str, *tests: str, survives: str = "") -> Mutant:
    return Mutant(name, f"{_DEVICE}{file}.cuh", old, new, tests, survives)


def _cases(implementation: str, group: str = "float32", device: str = "cuda") -> str:
    return f"tests/test_cases.py::test_more_cases[{device}-{implementation}-{group}]"


def _drops(implementation: str, device: str = "cuda") -> str:
    return f"tests/test_bounds.py::test_drop_never_writes_outside[{device}-{implementation}]"


def _ordered(implementation: str, device: str = "cuda") -> str:
    return f"tests/test_cases.py::test_more_cases_deterministic[{device}-{implementation}]"


def _large(implementation: str) -> str:
    return f"tests/test_races.py::test_large_problems[{implementation}]"


def _edge(name: str) -> str:
    return f"tests/test_kernel_edges.py::test_edges[cuda-{name}]"


_SKEW = "tests/test_bucketed.py::test_any_skew"

KERNELS = (
    _kernel(
        "a sum in shared memory is added twice",
        "atomic",
        "bit_cast<Word>(whole_sum(bit_cast<T>(seen), update))) == seen) return;",
        "bit_cast<Word>(whole_sum(bit_cast<T>(seen), update))) == seen) {}",
        _cases("row_resident"),
    ),
    _kernel(
        "units of a bucket stand where another's do",
        "tiled",
        "tiles.units[claim.first + u]",
        "tiles.units[u]",
        "tests/test_kernel_edges.py::test_units_of_many_buckets_are_taken_once_each[cuda]",
    ),
    _kernel(
        "a block leaves its units to others",
        "tiled",
        "bool any_left = true;",
        "bool any_left = false;",
        _edge("tiled_units"),
    ),
    _kernel(
        "winner read before all have searched",
        "gather",
        "  __syncthreads();\n  const Data* from = data + place * sizes.slice;",
        "  const Data* from = data + place * sizes.slice;",
        _edge("search"),
    ),
    _kernel(
        "the next update is no later one",
        "gather",
        "for (Offset other = k + 1 + threadIdx.x;",
        "for (Offset other = k + 2 + threadIdx.x;",
        _edge("later_one"),
    ),
    _kernel(
        "the first update wins",
        "gather",
        "if (place < sizes.destinations()) atomicMax(winners + place, static_cast<Offset>(at));",
        "if (place < sizes.destinations() && winners[place] == kNoUpdate)\n"
        "      atomicMax(winners + place, static_cast<Offset>(at));",
        _edge("map"),
    ),
    _kernel(
        "bins of lanes rounded to 16 bits",
        "bins",
        "*mine = P::Reduction::combine(*mine, widen(value));",
        "*mine = widen(narrow<typename P::Data>(P::Reduction::combine(*mine, widen(value))));",
        "tests/test_kernel_edges.py::test_bins_of_lanes_hold_more_than_16_bits[cuda]",
    ),
    _kernel(
        "bins merged by one lane less",
        "bins",
        "for (int row = lane; row < rows; row += kWarp)",
        "for (int row = lane + 1; row < rows; row += kWarp)",
        _edge("bins"),
        _edge("copies_of_bins"),
    ),
    _kernel(
        "an unsigned index of 32 bits read as int",
        "problem",
        "sizeof(typename P::Index) < 4 || same<typename P::Index, int>;",
        "sizeof(typename P::Index) <= 4;",
        _edge("unsigned"),
    ),
    _kernel(
        "an index of the extent taken for good",
        "problem",
        "if (P::check && (index < 0 || index >= extent)) {",
        "if (P::check && (index < 0 || index > extent)) {",
        _drops("sequential"),
    ),
    _kernel(
        "a negative index one too far",
        "problem",
        "if (P::wrap && index < 0) index += extent;",
        "if (P::wrap && index < 0) index += extent - 1;",
        _drops("sequential"),
    ),
    _kernel(
        "a second component that is not scaled",
        "problem",
        "destination = destination * static_cast<Offset>(extent) + static_cast<Offset>(index);",
        "destination = destination + static_cast<Offset>(index);",
        _drops("sequential"),
    ),
    _kernel(
        "updates of no alignment read as vectors",
        "parallel",
        "(!P::update_slice || updates.template aligned<vector>())) {",
        "(!P::update_slice || vector > 0)) {",
        "tests/test_alignment.py::"
        "test_tensors_aligned_to_their_elements_only[cuda-parallel_injective-all]",
    ),
    _kernel(
        "lanes that skip every other vector of a long row",
        "parallel",
        "for (Offset column = lane; column < width; column += lanes * vector) {",
        "for (Offset column = lane; column < width; column += lanes * vector * 2) {",
        _edge("long_rows"),
    ),
    _kernel(
        "unique updates that forget the data",
        "parallel",
        "old.at[i] = combine_stored<R>(old.at[i], held[u].at[i]);",
        "old.at[i] = held[u].at[i];",
        _edge("once"),
    ),
    _kernel(
        "a swap that clears the neighbouring bytes",
        "atomic",
        "const uint32 next = (seen & ~(mask << shift)) | (bits << shift);",
        "const uint32 next = bits << shift;",
        _edge("bytes"),
    ),
    _kernel(
        "a NaN with the bits that it came with",
        "reduction",
        "return bit_cast<T>(same<R, Min> ? last : static_cast<Bits<T>>(last >> 1));",
        "return value;",
        "tests/test_exact_bits.py::test_bits[cuda-sequential-some]",
    ),
    _kernel(
        "lanes combined all but the last two",
        "reduction",
        "for (int distance = kWarp / 2; distance > 0; distance /= 2) {",
        "for (int distance = kWarp / 2; distance > 1; distance /= 2) {",
        _edge("bins"),
        _edge("copies_of_bins"),
    ),
    _kernel(
        "a scan whose warps go on at once",
        "block_scan",
        "  __syncthreads();\n  return before + inclusive - value;",
        "  return before + inclusive - value;",
        _edge("buckets"),
        _SKEW,
    ),
    _kernel(
        "a scan that leaves the first lane out",
        "block_scan",
        "if (lane >= distance) value += below;",
        "if (lane > distance) value += below;",
        _edge("lists"),
        _edge("buckets"),
    ),
    _kernel(
        "a bucket of two units that is not copied",
        "partition",
        "if (first_units[bucket + 1] - first_units[bucket] < 2) return;",
        "if (first_units[bucket + 1] - first_units[bucket] < 3) return;",
        _edge("buckets"),
    ),
    _kernel(
        "a bucket without updates that has no unit",
        "partition",
        "const uint32 needed = b < buckets ? max(1u, ceil_div(count, unit)) : 0;",
        "const uint32 needed = b < buckets ? ceil_div(count, unit) : 0;",
        _edge("buckets"),
    ),
    _kernel(
        "hot places merged for half of the slots",
        "partition",
        "for (uint32 slot = threadIdx.x / kWarp; slot < slots; slot += blockDim.x / kWarp) {",
        "for (uint32 slot = threadIdx.x / kWarp; slot < slots / 2; slot += blockDim.x / kWarp) {",
        _edge("buckets"),
    ),
    _kernel(
        "the last chunk of a long list as long as the others",
        "grouped",
        "const uint32 length = min(chunk, groups.counts[list.place] - first);",
        "const uint32 length = chunk;",
        _edge("lists"),
    ),
    _kernel(
        "lists that begin before it is known where",
        "grouped",
        "  __syncthreads();\n  if (count == 0) return;",
        "  if (count == 0) return;",
        _edge("lists"),
        _edge("tiles_of_lists"),
    ),
    _kernel(
        "ranks of a block that forget the blocks before",
        "grouped",
        "rank[u] + (tabled[u] ? before[slot_of(place[u])] : 0);",
        "rank[u];",
        _edge("tiles_of_lists"),
    ),
    _kernel(
        "sums of neighbouring teams added twice",
        "listed_rows",
        "const bool leads = slot != kNone && (team == 0 || slot_of[team - 1] != slot);",
        "const bool leads = slot != kNone;",
        _edge("tiles_of_lists"),
        _SKEW,
    ),
    _kernel(
        "a run that ends with a word not counted before the next one",
        "runs",
        "min((first + length) / kWarp, static_cast<uint32>(words) - 1)",
        "min((first + length - 1) / kWarp, static_cast<uint32>(words) - 1)",
        "tests/test_bucketed.py::test_runs_of_words",
    ),
    _kernel(
        "a run counted twice where it crosses a word",
        "runs",
        "marks.earlier[word] = run + 1;",
        "marks.earlier[word] = run + 1 + (word > first / kWarp + 1);",
        "tests/test_bucketed.py::test_runs_of_words",
    ),
    _kernel(
        "what a bucket holds taken in the order of its runs",
        "bucketed",
        "held ? load_entry(carried[item])",
        "held ? load_entry(carried[i])",
        "tests/test_carried.py::test_tiles[cuda-2-True]",
    ),
    _kernel(
        "what lists carry left in the order of the items",
        "bucketed",
        "store_entry(ordered_carried + to, carried[i]);",
        "store_entry(ordered_carried + threadIdx.x + i * kTileThreads, carried[i]);",
        "tests/test_carried.py::test_tiles[cuda-2-True]",
    ),
    _kernel(
        "an odd row of a list left out",
        "row_sums",
        "visit(start, held, Known<in_flight - 1>{}, start < count ? count - start : 0);",
        "visit(start, held, Known<in_flight - 1>{}, start < count ? count - start - 1 : 0);",
        _edge("segments"),
        _edge("tiles_of_lists"),
    ),
    _kernel(
        "the last entries of a bucket's unit taken twice",
        "runs",
        "if (tile == first_tile) begin += skip, length -= skip;",
        "if (tile == first_tile) begin += skip;",
        _SKEW,
    ),
    _kernel(
        "a bucket that does not fit ordered all the same",
        "bucketed",
        "if (found > most) {",
        "if (found > 2 * most) {",
        _SKEW,
    ),
    _kernel(
        "a run's last item that is not its end",
        "segment",
        "const bool to_after = end < size && list[end] == list[end - 1];",
        "const bool to_after = end + 1 < size && list[end] == list[end - 1];",
        _edge("runs"),
    ),
    _kernel(
        "pieces of two segments in one slot",
        "segmented",
        "first_slot(static_cast<uint32>((begin + (T(1) << bits) - 1) >> bits)),",
        "first_slot(static_cast<uint32>(begin >> bits)),",
        _edge("segments"),
    ),
    _kernel(
        "a computed row of a list left out",
        "row_sums",
        "visit(start, held, Known<in_flight - 1>{}, count - start);",
        "visit(start, held, Known<in_flight - 1>{}, count - start - 1);",
        _LOGITS + "test_shapes",
    ),
    _kernel(
        "the last part of a row that a block shares",
        "shared_rows",
        "for (uint32 other = 1; other * each < count; ++other)",
        "for (uint32 other = 1; (other + 1) * each < count; ++other)",
        "tests/test_fuse_softmax.py::test_a_block_shares_its_longer_rows",
    ),
    _kernel(
        "the own row of another place",
        "place_columns",
        "own_of<P, vector, whole>(updates, place, own_columns.at(number));",
        "own_of<P, vector, whole>(updates, 0, own_columns.at(number));",
        "tests/test_own_rows.py::test_own_rows_are_read_once",
    ),
    _kernel(
        "a thread's columns of one row written into the next",
        "place_columns",
        "if (number == 0 || first + number * step < width) visit",
        "if (true) visit",
        "tests/test_columns_apart.py::test_sums",
    ),
    _kernel(
        "columns read beyond the last row",
        "place_columns",
        "min(first + number * step, width - vector);",
        "first + number * step;",
        "tests/test_sanitized.py::test_random_problems",
    ),
    _kernel(
        "a row of a part begins where a thread with one vector would",
        "row_sums",
        "(tile * lanes * columns + lane)",
        "(tile * lanes + lane)",
        "tests/test_columns_apart.py::test_sums",
    ),
    _kernel(
        "the sums of all columns of a piece written to its first",
        "segmented",
        "ready.template at<vector>(sizes, static_cast<uint32>(share.row), at) = part;",
        "ready.template at<vector>(sizes, static_cast<uint32>(share.row), column) = part;",
        "tests/test_columns_apart.py::test_sums",
    ),
    _kernel(
        "pieces of the order of elements looked for as if there was one batch",
        "segmented",
        "return static_cast<int>(place[0]);",
        "return static_cast<int>(place[0] % sizes.extents[0]);",
        "tests/test_segmented_orders.py::test_sums",
    ),
    _kernel(
        "sums of a long row added up as if as many teams had some as a power of two",
        "owned_rows",
        "if (team % (2 * apart) == 0 && team + apart < shares) {",
        "if (team % (2 * apart) == 0 && team + 2 * apart <= shares) {",
        "tests/test_owned_rows.py::test_long_rows",
    ),
    _kernel(
        "columns of the place before, where a unit goes on with the next",
        "bucketed",
        "rows.go_to(first_row + place);",
        "",
        "tests/test_columns_apart.py::test_buckets_that_are_cut",
    ),
    _kernel(
        "what an order moves left where its tile has it",
        "bucket_order",
        "load_entry(moves.by_tile[found])",
        "load_entry(moves.by_tile[to])",
        "tests/test_carried.py::test_orders_move_what_is_carried[cuda-3000-False-1]",
    ),
    _kernel(
        "what an order moves read for the item that stands there before",
        "bucket_order",
        "const Item<P> item(sizes, static_cast<Offset>(first + (ordered[at] >> order.bits)));",
        "const Item<P> item(sizes, static_cast<Offset>(first + at));",
        "tests/test_carried.py::test_orders_move_what_is_carried[cuda-3000-False-1]",
    ),
    _kernel(
        "an update numbered by where its entry stands, where more is moved",
        "bucket_order",
        "permutation[to] = static_cast<int>(own >> bits);",
        "permutation[to] = static_cast<int>(found);",
        "tests/test_carried.py::test_orders_move_what_is_carried[cuda-3000-False-1]",
    ),
    _kernel(
        "places counted once for each turn of a block, where these are none",
        "bucket_order",
        "       place += kBucketOrderThreads) {",
        "       place += kBucketOrderThreads * 2) {",
        "tests/test_order_forms.py::test_more_places_than_threads[cuda-14000-1500-10-20.0]",
    ),
    _kernel(
        "a large bucket cut by the threads of a small one",
        "bucketed",
        "split_bucket<P, threads>(",
        "split_bucket<P, threads / 2>(",
        "tests/test_bucketed.py::test_large_rooms[all on one]",
    ),
    _kernel(
        "a logit without the columns of some threads",
        "shared_logits",
        "for (int distance = sharing / 2; distance > 0; distance /= 2)",
        "for (int distance = sharing / 2; distance > 1; distance /= 2)",
        _LOGITS + "test_shapes",
    ),
    _kernel(
        "columns that a thread has not counted in a logit",
        "place_updates",
        "const auto part = counts ? row.part : decltype(row.part)(0);",
        "const auto part = row.part;",
        _LOGITS + "test_shapes",
    ),
    _kernel(
        "a sort that turns equal keys around",
        "stable_ranks",
        "const uint32 before = __popc(peers & below);",
        "const uint32 before = __popc(peers & ~below) - 1;",
        _edge("order"),
    ),
    _kernel(
        "lanes that are still in the table when the next ones look",
        "stable_ranks",
        "if (!is_first) *word = 0;",
        "",
        "tests/test_order_forms.py::test_skewed_destinations",
    ),
    _kernel(
        "lanes of one word taken for those of one number",
        "stable_ranks",
        "is_first ? first : *word & others;",
        "is_first ? first : *word;",
        "tests/test_order_forms.py::test_small_ones",
    ),
    _kernel(
        "lanes of the first lane's number missing in their votes",
        "stable_ranks",
        "const bool is_first = number == __shfl_sync(kAllLanes, number, 0);",
        "const bool is_first = threadIdx.x % kWarp == 0;",
        "tests/test_order_forms.py::test_skewed_destinations",
    ),
    _kernel(
        "a word of an order with its item of the tile only",
        "bucket_order",
        "(static_cast<Word>(from & ~(runs.tile_items - 1)) << bits) + entry;",
        "static_cast<Word>(entry);",
        "tests/test_order_forms.py::test_skewed_destinations",
    ),
    _kernel(
        "an item too large for its word",
        "bucket_order",
        "(static_cast<Word>(from & ~(runs.tile_items - 1)) << bits) + entry;",
        "static_cast<unsigned short>((from & ~(runs.tile_items - 1)) << bits) + entry;",
        "tests/test_order_forms.py::test_all_buckets_are_cut",
    ),
    _kernel(
        "the second of two bins begun with the first",
        "stable_ranks",
        "uint32 next = first | (first + low) << 16;",
        "uint32 next = first | first << 16;",
        "tests/test_order_forms.py::test_skewed_destinations",
    ),
    _kernel(
        "the last tile of a row as long as the others",
        "resident",
        "const int owned = static_cast<int>(min(static_cast<Offset>(tile), slab - begin));",
        "const int owned = tile;",
        _drops("row_resident"),
    ),
    _kernel(
        "a row changed before it is read",
        "resident",
        "held[i] = widen_bits(data_at<P, 1>(from, i).at[0]);\n  }\n  __syncthreads();",
        "held[i] = widen_bits(data_at<P, 1>(from, i).at[0]);\n  }",
        _edge("rows"),
    ),
    _kernel(
        "a mean of negative integers rounded to zero",
        "stages",
        "static_cast<T>(wide < 0 && quotient * divisor != wide ? quotient - 1 : quotient);",
        "static_cast<T>(quotient);",
        _edge("means"),
    ),
    _kernel(
        "a piece of a bag is taken for one of the next bag",
        "segmented",
        "begun == 0 ? places : begun - 1",
        "begun == 0 ? places : begun",
        "tests/test_torch_embedding_bag.py::test_bags_of_all_sizes[cuda]",
    ),
    _kernel(
        "a copy without its last bytes",
        "stages",
        "const int64 end = whole ? bytes :",
        "const int64 end = whole ? vectors * kCopyBytes :",
        _drops("parallel_injective"),
    ),
    _kernel(
        "a mean that does not count the data",
        "stages",
        "if (count) out[at] = divide(out[at], count + (P::include_self ? 1u : 0u));",
        "if (count) out[at] = divide(out[at], count);",
        _edge("means"),
    ),
    _kernel(
        "lines changed before they are copied",
        "sequential",
        "      out[at] = data[at];\n    }\n    __syncthreads();",
        "      out[at] = data[at];\n    }",
        _edge("lines"),
    ),
    _kernel(
        "a check that leaves out the last indices",
        "check",
        "const int64 share = (entries + gridDim.x - 1) / gridDim.x;",
        "const int64 share = entries / gridDim.x;",
        "tests/test_last_index.py::test_the_last_of_many_is_looked_at",
    ),
    _kernel(
        "a check that tells of any bad index",
        "check",
        "if (first.position < 0 || first.order() != least) return;",
        "if (first.position < 0) return;",
        "tests/test_bounds.py::test_good_and_bad_calls_in_turn[cuda-checked]",
        "tests/test_bounds.py::test_good_and_bad_calls_in_turn[cuda-symbolic]",
    ),
)

LAUNCHES = (
    Mutant(
        "offsets of 32 bits for what needs more",
        "strategies/cuda/codegen/launch.py",
        "_NARROW_LIMIT = 1 << 30",
        "_NARROW_LIMIT = 1 << 40",
        ("tests/test_offsets.py::test_offsets_are_wide_where_they_must_be",),
    ),
    Mutant(
        "more buckets of unknown sizes than are counted",
        "strategies/cuda/steps/bucket_sizes.py",
        "real(2 * ceil_div(sizes.destinations, MOST_BUCKETS) - 1)",
        "real(0 * sizes.destinations)",
        ("tests/test_bucketed.py::test_no_more_buckets_than_are_counted",),
    ),
    Mutant(
        "the first elements of a tensor that has none",
        "tvm_scatter/emit/known_leaves.py",
        "tirx.And(size > 0, size <=",
        "tirx.And(size >= 0, size <=",
        ("tests/test_known_leaves.py::test_the_host_asks_all_sizes",),
    ),
    Mutant(
        "a block of bins without memory for its sums",
        "strategies/cuda/lane_bins.py",
        "return _blocks(target) * output_bytes(problem)",
        "return (_blocks(target) - 1) * output_bytes(problem)",
        (_drops("lane_bins"),),
    ),
    Mutant(
        "bins that include the data where they must not",
        "strategies/cuda/shared_bins.py",
        "    if problem.include_self:\n",
        "    if problem.include_self or operands.data is not None:\n",
        (_drops("shared_bins"),),
    ),
    Mutant(
        "rows of three elements moved by four",
        "tvm_scatter/problem/vectors.py",
        "while elements > 1 and problem.slice.constant % elements:",
        "while elements > 1 and problem.slice.constant % elements == 0:",
        (_drops("parallel_injective"),),
    ),
    Mutant(
        "a level of partial sums left out",
        "strategies/cuda/sort_based.py",
        "if isinstance(size, int) and size <= _CHUNK:",
        "if isinstance(size, int) and size <= 8 * _CHUNK:",
        (_edge("levels_of_runs"),),
    ),
)

_LLVM = "strategies/llvm/"
_SORTED_ROWS = "tests/test_sorted_rows.py::"
_RECORDS = "tvm_scatter/selection/records.py"

CPU = (
    Mutant(
        "a mean counted once for each block of columns",
        "strategies/llvm/steps/ordered.py",
        "counting = tirx.all(counting, share.column == 0)",
        "counting = tirx.all(counting, share.column >= 0)",
        (_large("sequential"),),
    ),
    Mutant(
        "a mean counted once for each batch",
        "strategies/llvm/steps/ordered.py",
        "counting = tirx.all(counting, share.batch == 0)",
        "counting = tirx.all(counting, share.batch >= 0)",
        (_large("sequential"),),
    ),
    Mutant(
        "two workers own the place between them",
        "strategies/llvm/steps/ordered.py",
        "inside = tirx.all(valid, place >= low, place < high)",
        "inside = tirx.all(valid, place >= low, place <= high)",
        (_large("parallel_injective"),),
    ),
    Mutant(
        "two workers own the column between them",
        "strategies/llvm/steps/ordered.py",
        "own = loops.settle(tirx.max(loops.minimum(sizes.slice - column, columns), 0))",
        "own = loops.settle(tirx.max(loops.minimum(sizes.slice - column, columns + 1), 0))",
        (_large("sequential"),),
    ),
    Mutant(
        "a reduction without the data that includes it",
        "strategies/llvm/steps/ordered.py",
        "if starts_empty and not problem.unique:",
        "if starts_empty and problem.unique:",
        (_cases("sequential", device="llvm"),),
    ),
    Mutant(
        "a mean on a CPU that does not count the data",
        "strategies/llvm/steps/ordered.py",
        "count = T.bind(count + tirx.const(1, str(counts.dtype)))",
        "count = T.bind(count + tirx.const(0, str(counts.dtype)))",
        (_cases("sequential", device="llvm"),),
    ),
    Mutant(
        "all chunks share the bins of the first",
        _LLVM + "private_bins.py",
        "own = T.bind(tirx.truncdiv(start, chunk) * size)",
        "own = T.bind(tirx.truncdiv(start, chunk) * 0)",
        (_large("private_bins"),),
    ),
    Mutant(
        "unique updates that every worker applies",
        _LLVM + "parallel_injective.py",
        "updates=(start, length))",
        "updates=(start * 0, sizes.count))",
        (_large("parallel_injective"),),
    ),
    Mutant(
        "chunks of a sort that share one histogram",
        "strategies/llvm/steps/radix.py",
        "        def place(c: Any) -> None:\n            start, length = self._bounds(c)\n"
        "            base = T.bind(c * self.buckets)",
        "        def place(c: Any) -> None:\n            start, length = self._bounds(c)\n"
        "            base = T.bind(c * 0)",
        (_SORTED_ROWS + "test_many_destinations[262144]",),
    ),
    Mutant(
        "a sort by too few bits",
        "strategies/llvm/steps/radix.py",
        "return passes, -(-bits // passes)",
        "return passes, bits // passes",
        (_SORTED_ROWS + "test_many_destinations[262144]",),
    ),
    Mutant(
        "no key for what is dropped",
        "strategies/llvm/steps/radix.py",
        "bits = max(self.keys.bit_length(), 1)",
        "bits = max((self.keys - 1).bit_length(), 1)",
        (_SORTED_ROWS + "test_rows_of_any_width[float32-False]",),
    ),
    Mutant(
        "a segment that ends in the next chunk joined without it",
        "strategies/llvm/steps/reduction.py",
        "with loops.serial(last - c) as i:",
        "with loops.serial(last - c - 1) as i:",
        (_large("sort_based"),),
    ),
    Mutant(
        "chunks of a sort that share their counters",
        "strategies/llvm/steps/counting.py",
        "        def place(c: Any) -> None:\n"
        "            start, length = loops.chunk_bounds(c, self.items, self.chunk)\n"
        "            base = T.bind(c * self._counters)",
        "        def place(c: Any) -> None:\n"
        "            start, length = loops.chunk_bounds(c, self.items, self.chunk)\n"
        "            base = T.bind(c * 0)",
        (_SORTED_ROWS + "test_many_destinations[5000]",),
    ),
    Mutant(
        "fields of a record that lie on each other",
        "strategies/llvm/steps/records.py",
        "begin += widths[at]",
        "begin += 0 * widths[at]",
        ("tests/test_pairs_of_columns.py::test_sums[carried-32-weighted]",),
    ),
    Mutant(
        "a number cut to 32 bits that is more than where a row begins",
        "strategies/llvm/steps/begins_of_rows.py",
        'str(name.ty.dtype) == "int64" and _only_begins(name, value, analyzer) for name in names',
        'str(name.ty.dtype) == "int64" for name in names',
        ("tests/test_carried.py::test_a_cpu_finds_numbers_that_are_more_than_begins_of_rows",),
    ),
    Mutant(
        "parts of a segment joined by columns where they stand by slots",
        "strategies/llvm/steps/reduction.py",
        "slot = pairs.slot(s) if self.in_pairs else s",
        "slot = s",
        ("tests/test_pairs_of_columns.py::test_sums[read-32-sum]",),
    ),
    Mutant(
        "rows read in words that begin within one",
        "strategies/llvm/steps/pairs.py",
        "return bool(Analyzer().can_prove_equal(tirx.floormod(begin, 2), 0))",
        "return True",
        ("tests/test_pairs_of_columns.py::test_rows_that_begin_with_whole_words",),
    ),
    Mutant(
        "one place read ahead for all rows of a chunk",
        "strategies/llvm/steps/read_ahead.py",
        "self.read(i, T.bind(update_at(i)))",
        "self.read(i, T.bind(update_at(i * 0)))",
        (
            "tests/test_fuse_producers.py::"
            "test_where_rows_are_is_read_ahead_of_them[True-max-float32]",
        ),
    ),
    Mutant(
        "what began in the chunk before left out",
        "strategies/llvm/steps/rows.py",
        "return tirx.max(low[0] - 1, loops.int64(0))",
        "return tirx.max(low[0], loops.int64(0))",
        (_SORTED_ROWS + "test_rows_that_are_filled[add-2.5-float32]",),
    ),
    Mutant(
        "rows behind the last update that are not filled",
        "strategies/llvm/steps/rows.py",
        "is_last = T.bind(part.chunk == loops.int64(self.chunks) - 1)",
        "is_last = T.bind(part.chunk == loops.int64(self.chunks))",
        (_SORTED_ROWS + "test_rows_that_are_filled[add-2.5-float32]",),
    ),
    Mutant(
        "the first update of a row wins",
        "strategies/llvm/steps/rows.py",
        "self.store(T.bind(self._item_at(end - 1)), key)",
        "self.store(T.bind(self._item_at(begin)), key)",
        (_SORTED_ROWS + "test_many_destinations[5000]",),
    ),
    Mutant(
        "the first update of a segment wins",
        "strategies/llvm/steps/segments.py",
        "with T.If(tirx.all(key < self.key_limit, self._ends(at, key))):",
        "with T.If(tirx.all(key < self.key_limit, self._begins(at, key))):",
        (_SORTED_ROWS + "test_many_destinations[262144]",),
    ),
    Mutant(
        "a NaN without an update is rounded",
        _LLVM + "widened.py",
        "tirx.Select(kept, old, rounded)",
        "rounded",
        ("tests/test_exact_bits.py::test_bits[llvm-widened-some]",),
    ),
    Mutant(
        "a widened sum without the counts of its mean",
        _LLVM + "widened.py",
        "offset = _counts_bytes(problem, sizes)\n",
        "offset = 0\n",
        ("tests/test_rounding.py::test_a_mean_of_16_bits_is_widened",),
    ),
    Mutant(
        "a bucket of which only the first element is filled",
        _LLVM + "partitioned.py",
        "begin_range(operands, low, room)",
        "begin_range(operands, low, 1)",
        ("tests/test_fill_data.py::test_each_that_fills",),
    ),
    Mutant(
        "what is dropped falls into the last bucket",
        _LLVM + "partitioned.py",
        "nowhere = loops.int64(self.buckets << self.shift)",
        "nowhere = loops.int64((self.buckets << self.shift) - 1)",
        (_drops("partitioned", "llvm"), _large("partitioned")),
    ),
    Mutant(
        "a bucket that begins where the one before does",
        _LLVM + "partitioned.py",
        "before = self._places[tirx.max(ends - 1, loops.int64(0))]",
        "before = self._places[tirx.max(ends - 2, loops.int64(0))]",
        (_large("partitioned"),),
    ),
    Mutant(
        "a last chunk as long as the others",
        "strategies/llvm/steps/loops.py",
        "return start, T.bind(int64(minimum(size - start, chunk)))",
        "return start, T.bind(int64(chunk))",
        (_drops("partitioned", "llvm"), _large("private_bins")),
    ),
    Mutant(
        "a copy without the elements behind the last page",
        "strategies/llvm/steps/loops.py",
        "copy(T.bind(start + done), length - done)",
        "copy(T.bind(start + done), length - done - 1)",
        (_large("sequential"),),
    ),
    Mutant(
        "a negative index on a CPU one too far",
        "strategies/llvm/steps/loops.py",
        "index = T.bind(tirx.Select(index < 0, index + extent, index))",
        "index = T.bind(tirx.Select(index < 0, index + extent - 1, index))",
        (_cases("sequential", device="llvm"),),
    ),
    Mutant(
        "an index of the extent taken for good on a CPU",
        "strategies/llvm/steps/loops.py",
        "valid = tirx.all(valid, index >= 0, index < kept_apart(extent))",
        "valid = tirx.all(valid, index >= 0, index <= kept_apart(extent))",
        (_drops("sequential", "llvm"),),
    ),
    Mutant(
        "a mean of negative integers on a CPU rounded to zero",
        "strategies/llvm/steps/values.py",
        'return convert(tirx.floordiv(convert(total, "int64"), convert(count, "int64")), dtype)',
        'return convert(tirx.truncdiv(convert(total, "int64"), convert(count, "int64")), dtype)',
        (_cases("sequential", "others", "llvm"),),
    ),
)

_BOUNDS = "tvm_scatter/bounds/host_check.py"

_TIES = "tests/test_tuning.py::test_the_default_is_chosen_where_a_log_has_it_as_fast_as_any"
_REAL = "tests/test_machine_arithmetic.py::test_a_message_is_not_simplified"
_PLACED = "tests/test_machine_arithmetic.py::test_a_computed_place_is_within_what_is_read"
_WRAPS = "tests/test_machine_arithmetic.py::test_a_message_of_integers_wraps_around"
_ROUNDED = (
    "tests/test_fuse_producers.py::test_products_of_bfloat16_are_rounded_where_they_are_asked_to_be"
)
_ALONE = "tests/test_host_check.py::test_every_bad_index_at_every_position"

CHECKS = (
    Mutant(
        "a distance that TVM promises never to wrap around",
        _BOUNDS,
        'to_highest = wrapping_sub(extent - 1, index, "int64")',
        'wide = tirx.Cast("uint64", extent - 1) - tirx.Cast("uint64", index)\n'
        '        to_highest = tirx.Cast("int64", wide)',
        (_ALONE + "[int64-True]",),
    ),
    Mutant(
        "an index of the extent is good",
        _BOUNDS,
        'to_highest = wrapping_sub(extent - 1, index, "int64")',
        'to_highest = wrapping_sub(extent, index, "int64")',
        (_ALONE + "[int64-True]",),
    ),
    Mutant(
        "the error names the index behind the bad one",
        _BOUNDS,
        "return tirx.any(index < lowest, index >= kept_apart(extent))",
        "return tirx.any(index < lowest, index > kept_apart(extent))",
        (_ALONE + "[int64-True]",),
    ),
    Mutant(
        "a chosen sum of which a term is subtracted is simplified",
        "tvm_scatter/lowering/machine_arithmetic.py",
        "    return type(node)(node.a, kept(node.b))",
        "    return node",
        (_REAL + "[llvm-a chosen sum without a term-float32]",),
    ),
    Mutant(
        "a NaN that equals itself",
        "tvm_scatter/lowering/machine_arithmetic.py",
        "alike = [(tirx.Sub, _unlike), (tirx.EQ, _unlike)",
        "alike = [(tirx.Sub, _unlike)",
        (_REAL + "[llvm-equal products-float32]",),
    ),
    Mutant(
        "of unsigned sums that are compared TVM makes a difference",
        "tvm_scatter/lowering/machine_arithmetic.py",
        'dtype in MAY_WRAP or dtype.startswith("uint")',
        "dtype in MAY_WRAP",
        (_WRAPS + "[llvm-one more is more-uint8]",),
    ),
    Mutant(
        "one more is always more",
        "tvm_scatter/lowering/machine_arithmetic.py",
        "    return kept(value) if has_number or _is_any(value, kinds) else value",
        "    return value",
        (_WRAPS + "[llvm-one more is more-int32]",),
    ),
    Mutant(
        "a sum that a CPU takes never to overflow",
        "tvm_scatter/emit/kept.py",
        "    return node if value is None or not _may_wrap(value) else kept(_wrapped(value))",
        "    return node",
        (_WRAPS + "[llvm-the smaller of sums-int32]",),
    ),
    Mutant(
        "a cast to fewer bits loses nothing",
        "tvm_scatter/lowering/machine_arithmetic.py",
        '    return both and not np.can_cast(given, made, "safe")',
        "    return False",
        (
            "tests/test_machine_arithmetic.py::test_a_cast_to_fewer_bits_may_change_the_sign[llvm-3000000000]",
        ),
    ),
    Mutant(
        "a CPU computes where it reads together with what it reads",
        "tvm_scatter/passes/analysis/taken_producers.py",
        "    if backend_of(target_of(binding.var)).is_gpu or is_read(value):",
        "    if True:",
        (_PLACED + "[llvm-by a comparison-int64]",),
    ),
    Mutant(
        "a record that may not be chosen says what is best",
        "tvm_scatter/selection/strategy.py",
        "            known = shipped_records(each, target, usable)",
        "            known = shipped_records(each, target)",
        ("tests/test_tuning.py::test_what_may_not_be_chosen_does_not_say_what_is_best",),
    ),
    Mutant(
        "what a cast to bfloat16 rounds is summed as it was",
        "tvm_scatter/emit/single_precision.py",
        "if isinstance(updates.value, tirx.Cast):",
        "if False:",
        (_ROUNDED + "[llvm-add-True]",),
    ),
    Mutant(
        "products of bfloat16 that a CPU rounds before it sums them",
        "tvm_scatter/emit/single_precision.py",
        "if isinstance(updates.value, tirx.Cast):",
        "if True:",
        (_ROUNDED + "[llvm-mean-False]",),
    ),
    Mutant(
        "a number moves from an extent to the index that is compared with it",
        "tvm_scatter/emit/wrapping.py",
        'return tirx.Cast("int64", tirx.Cast("uint64", extent))',
        "return extent",
        ("tests/test_order.py::test_the_ends_of_a_type_have_no_place[llvm-int64-True]",),
    ),
    Mutant(
        "sizes beyond those that a model was exported for are let through",
        "tvm_scatter/passes/check_exported_sizes.py",
        "if size in most:",
        "if False:",
        ("tests/test_exported_sizes.py::test_sizes_beyond",),
    ),
    Mutant(
        "the least size that PyTorch always notes is taken for one that a program needs",
        "tvm_scatter/problem/size_conditions.py",
        "USUAL_LEAST = 2",
        "USUAL_LEAST = 0",
        ("tests/test_exported_sizes.py::test_sizes_of_any_number",),
    ),
    Mutant(
        "floats that are made of positions are shown to an analysis that stops at them",
        "tvm_scatter/schedules/floats_of_places.py",
        'if not _is_float(conversion) or "int" not in',
        'if _is_float(conversion) or "int" not in',
        ("tests/test_floats_of_places.py::test_agrees_with_pytorch",),
    ),
    Mutant(
        "axes are padded from the first one on",
        "tvm_scatter/importers/torch/padding.py",
        "in reversed(range(0, len(padding), 2))",
        "in range(0, len(padding), 2)",
        ("tests/test_torch_size_arguments.py::test_matrices",),
    ),
    Mutant(
        "the longest of the windows of an unknown size misses an element",
        "tvm_scatter/importers/torch/windows.py",
        "return tirx.floordiv(size + windows - 1, windows) + 1",
        "return tirx.floordiv(size + windows - 1, windows)",
        ("tests/test_torch_size_arguments.py::test_images",),
    ),
    Mutant(
        "taps of a deformed convolution are moved along the other axis",
        "tvm_scatter/importers/torch/deformed.py",
        "2 * number + axis, *at",
        "2 * number + 1 - axis, *at",
        ("tests/test_torchvision_operators.py::test_deform_conv2d",),
    ),
    Mutant(
        "the last of a known number of rows are compiled apart, of whatever size a product is",
        "tvm_scatter/schedules/cpu/product.py",
        "if even or _same_kind(found, tile.row):",
        "if True:",
        ("tests/test_cpu_schedules.py::test_rows_that_no_tile_divides",),
    ),
    Mutant(
        "boxes of the image behind the last one are let through",
        "tvm_scatter/importers/torch/boxes.py",
        "(AT_MOST, images - 1)",
        "(AT_MOST, images)",
        ("tests/test_torchvision_operators.py::test_boxes_of_no_image",),
    ),
    Mutant(
        "the greatest value of a size is looked up under the variable's own name",
        "tvm_scatter/passes/analysis/greatest_sizes.py",
        "name = each.name if named is None else named[1]",
        "name = each.name",
        ("tests/test_share_orders.py::test_a_mask_has_at_most_all_of_its_entries",),
    ),
    Mutant(
        "sums of pieces are added up before the last of them is ready",
        "strategies/cuda/device/segmented.cuh",
        "if (before + 1 != groups) return false;",
        "if (before + 2 != groups) return false;",
        ("tests/test_long_segments.py::test_segments_of_all_lengths[much-float32-segmented]",),
    ),
    Mutant(
        "negative indices are good where they do not wrap",
        _BOUNDS,
        "below_zero = extent if wraps else 0",
        "below_zero = extent",
        (_ALONE + "[int64-False]",),
    ),
    Mutant(
        "the second component has the extent of the first",
        _BOUNDS,
        "index, extent = operands.indices[which], operands.extents[component]",
        "index, extent = operands.indices[which], operands.extents[0]",
        ("tests/test_host_check.py::test_each_component_has_its_own_extent",),
    ),
    Mutant(
        "the last indices are not checked",
        _BOUNDS,
        "chunk = ceil_div(entries, chunks)",
        "chunk = entries // chunks",
        ("tests/test_last_index.py::test_the_last_of_many_is_looked_at",),
    ),
    Mutant(
        "scatters that were put together, whose indices nobody looks at",
        "tvm_scatter/lowering/make.py",
        "if plan.way is Way.SCATTER and plan.check is None:",
        "if plan.way is Way.SCATTER:",
        (
            "tests/test_plan.py"
            "::test_scatters_put_together_are_checked_where_that_is_asked_for_later",
        ),
    ),
    Mutant(
        "an index that is converted for each axis that it addresses",
        "tvm_scatter/lowering/draft.py",
        "if earlier == operand:",
        "if earlier is operand:",
        ("tests/test_plan.py::test_an_index_of_two_axes_is_made_once",),
    ),
)

READING = (
    Mutant(
        "an index larger by one than what it covers",
        "tvm_scatter/bounds/size_check.py",
        "with T.If(small > large):",
        "with T.If(small > large + 1):",
        ("tests/test_size_check.py::test_an_index_larger_than_what_it_covers[llvm-raise]",),
    ),
    Mutant(
        "an archive with entries of any name",
        "tvm_scatter/cli/archive.py",
        'raise RefusedError(f"holds {name!r}")',
        "return None",
        ("tests/test_model_file.py::test_other_entries_are_refused",),
    ),
    Mutant(
        "a record that took no time",
        _RECORDS,
        "if not 0 < time < math.inf:",
        "if not 0 <= time < math.inf:",
        ("tests/test_damaged_logs.py::test_one_damaged_record_is_passed_over",),
    ),
    Mutant(
        "a NaN of 32 bits narrowed to infinity",
        _LLVM + "half.py",
        "| _QUIET, _int(0))",
        "& 0, _int(0))",
        ("tests/test_half.py::test_narrowing_of_special_values",),
    ),
)

_PASSES = "tvm_scatter/passes/"
_TOGETHER = "tests/test_raise_together.py::"
_IN_PLACE = "tests/test_reuse_buffers.py::"

_SHARED = "tests/test_shared_memory.py::"
_SHARING = "tvm_scatter/passes/analysis/sharing.py"
_KEPT = "tests/test_attributes.py::"

PASSES = (
    Mutant(
        "more axes in the longer group of a reshape",
        "tvm_scatter/lowering/reshaped.py",
        "which = int(counts[1] < counts[0])",
        "which = int(counts[0] < counts[1])",
        ("tests/test_reshapes_of_unknown_sizes.py::test_elements_are_where_numpy_has_them",),
    ),
    Mutant(
        "another field of a tuple",
        _PASSES + "read_fields.py",
        "made.fields[read.index]",
        "made.fields[0]",
        ("tests/test_read_fields.py::test_by_eye",),
    ),
    Mutant(
        "fields that nobody reads computed all the same",
        _PASSES + "read_fields.py",
        "relax.analysis.remove_all_unused(changed)",
        "changed",
        ("tests/test_read_fields.py::test_by_eye",),
    ),
    Mutant(
        "x * 1 is a new tensor",
        _SHARING,
        "return extreme or number in (0, 1) or not np.isfinite(number)",
        "return extreme or not np.isfinite(number)",
        (_SHARED + "test_only_what_is_certainly_new_is_overwritten",),
    ),
    Mutant(
        "the maximum of a tensor and itself is a new one",
        _SHARING,
        "if call.op.name in _CHOICES and left.same_as(right):",
        "if call.op.name in _CHOICES and not left.same_as(left):",
        (_SHARED + "test_only_what_is_certainly_new_is_overwritten",),
    ),
    Mutant(
        "a constant that has a variable is none",
        _SHARING,
        "return operand in constants",
        "return False",
        (_SHARED + "test_only_what_is_certainly_new_is_overwritten",),
    ),
    Mutant(
        "what TVM may legalize keeps nothing",
        _SHARING,
        "    if name in _VIEWS:",
        '    if name and call.op.has_attr("FLegalize") and name not in _ARITHMETIC:\n'
        "        return [leaf for leaf in operands if _may_be_view(result, leaf)]\n"
        "    if name in _VIEWS:",
        (_SHARED + "test_what_others_may_see_is_kept",),
    ),
    Mutant(
        "a view is a new tensor",
        _SHARING,
        "return operands[:1]",
        "return []",
        (_SHARED + "test_what_others_may_see_is_kept",),
    ),
    Mutant(
        "a rewrite drops that the order is asked for",
        "tvm_scatter/ops/scatter_call.py",
        "return dataclasses.replace(self, **changes)",
        'return dataclasses.replace(self, **{"ordered": False} | changes)',
        (_KEPT + "test_what_is_asked_for_is_kept",),
    ),
    Mutant(
        "scatters merged of which one is to be ordered",
        "tvm_scatter/ops/scatter_call.py",
        'own = {*REQUESTS} - {"operator", "wrap_negative", *FACTS, *but_for}',
        'own = {*REQUESTS} - {"operator", "wrap_negative", "ordered", *FACTS, *but_for}',
        (_KEPT + "test_what_is_asked_for_of_one_only",),
    ),
    Mutant(
        "a read right after the scatter is none",
        "tvm_scatter/passes/analysis/overwritable.py",
        "for other in bindings.all[binding.at + 1 :] if other.reads & shared]",
        "for other in bindings.all[binding.at + 2 :] if other.reads & shared]",
        (_IN_PLACE + "test_which_are_in_place", _IN_PLACE + "test_results"),
    ),
    Mutant(
        "what is returned is overwritten",
        "tvm_scatter/passes/analysis/overwritable.py",
        "    if bindings.returned & shared:",
        "    if bindings.returned & shared and not binding.var:",
        (_IN_PLACE + "test_a_scatter_that_nothing_reads_leaves_its_data_alone",),
    ),
    Mutant(
        "what the caller keeps is overwritten",
        "tvm_scatter/passes/analysis/overwritable.py",
        "    if kept:",
        "    if len(kept) > 1:",
        (_IN_PLACE + "test_which_are_in_place",),
    ),
    Mutant(
        "what is read before waits for nobody",
        "tvm_scatter/passes/analysis/overwritable.py",
        "    if binding.fused == 0:",
        "    if binding.fused >= 0:",
        (_IN_PLACE + "test_results_where_tvm_fuses_and_folds",),
    ),
    Mutant(
        "what comes from outside of a branch is overwritten",
        "tvm_scatter/passes/analysis/overwritable.py",
        "    if any(other.scope != binding.scope for other in bindings if other.var in shared):",
        "    if any(other.scope > binding.scope for other in bindings if other.var in shared):",
        (_IN_PLACE + "test_branches",),
    ),
    Mutant(
        "a parameter of a function that the module calls is overwritten",
        "tvm_scatter/passes/analysis/overwritable.py",
        "return given if given and name not in called_functions(mod) else []",
        "return given",
        (_IN_PLACE + "test_a_function_that_is_called_from_the_module_keeps_its_copy",),
    ),
    Mutant(
        "a donated tensor that is passed twice",
        _PASSES + "reuse_buffers.py",
        "        if new:\n            self.checked",
        "        if len(new) > 1:\n            self.checked",
        (_IN_PLACE + "test_a_donated_tensor_that_is_passed_twice",),
    ),
    Mutant(
        "an index that is a smaller box taken for rows",
        _PASSES + "fold_broadcast_index.py",
        "if is_empty(index) or not all(same_size(data[at], box[at]) for at in others):",
        "if is_empty(index) or not any(same_size(data[at], box[at]) for at in others):",
        ("tests/test_fold_broadcast_index.py::test_left_alone",),
    ),
    Mutant(
        "larger updates that are not cropped",
        _PASSES + "fold_broadcast_index.py",
        "return box if fits else False",
        "return None if fits else False",
        ("tests/test_fold_broadcast_index.py::test_larger_updates_are_cropped",),
    ),
    Mutant(
        "an index of rows that is older than a write to its source",
        _PASSES + "fold_broadcast_index.py",
        "            self.rows.clear()",
        "            pass",
        ("tests/test_fold_broadcast_index.py::test_a_column_that_is_written_to_in_between",),
    ),
    Mutant(
        "reshapes of one tensor to other shapes taken for one value",
        _PASSES + "analysis/same_value.py",
        "return same_shape(*shapes) and self(*roots)",
        "return self(*roots)",
        ("tests/test_one_head.py::test_other_shapes_are_others",),
    ),
    Mutant(
        "a broadcast that something reads is taken away",
        _PASSES + "fold_broadcast_index.py",
        "            if uses[var] > 0:",
        "            if uses[var] > 1:",
        ("tests/test_fold_broadcast_index.py::test_a_broadcast_that_is_read_elsewhere_stays",),
    ),
    Mutant(
        "a scatter that something else reads",
        "tvm_scatter/passes/merge_chains.py",
        "if scatter.data in open_chains and definitions.uses[scatter.data] == 1:",
        "if scatter.data in open_chains:",
        (
            "tests/test_bulk_scatters.py::test_results",
            "tests/test_bulk_scatters.py::test_number_of_scatters",
        ),
    ),
    Mutant(
        "a scatter that moves past a write",
        "tvm_scatter/passes/merge_chains.py",
        "            for tail in list(open_chains):\n                close(tail)\n"
        "            continue",
        "            continue",
        ("tests/test_bulk_scatters.py::test_a_write_in_between_keeps_scatters_apart",),
    ),
    Mutant(
        "the last write is not asked for",
        "tvm_scatter/passes/merge_chains.py",
        "ordered=last_wins or first.call.ordered,",
        "ordered=first.call.ordered,",
        ("tests/test_bulk_scatters.py::test_the_last_write_is_asked_for",),
    ),
    Mutant(
        "a row that is read with a stride",
        _PASSES + "nested_writes.py",
        "return (axis, begin, end) if all(each == 1 for each in stride) else None",
        "return (axis, begin, end)",
        ("tests/test_bulk_scatters.py::test_assignment_to_elements",),
        "equivalent: a slice with a stride has fewer rows than the range that is written back",
    ),
    Mutant(
        "a row that is read elsewhere",
        _PASSES + "nested_writes.py",
        "if _row_read(_behind_views(inner.data, values), outer.data, values) != fixed:",
        "if _row_read(_behind_views(inner.data, values), outer.data, values) is None:",
        (
            "tests/test_bulk_scatters.py::test_assignment_to_elements",
            "tests/test_bulk_scatters.py::test_results",
        ),
    ),
    Mutant(
        "scatters of different kinds put together",
        "tvm_scatter/passes/horizontal_fusion.py",
        "return call.replace(data=None, indices=(), updates=None, earlier=(), **facts), types",
        "return call.form, types",
        ("tests/test_batch_scatters.py::test_what_differs_stays_apart",),
    ),
    Mutant(
        "a dependent scatter put together with what it needs",
        "tvm_scatter/passes/analysis/dependence.py",
        "depths.append(max((depths[other] + (other in kinds) for other in earlier), default=0))",
        "depths.append(0)",
        ("tests/test_batch_scatters.py::test_dependent_scatters_stay_apart",),
    ),
    Mutant(
        "a read that comes before a write in place",
        "tvm_scatter/passes/analysis/dependence.py",
        "before[binding.at] |= {other.at for other in earlier if other.reads & written}",
        "pass",
        ("tests/test_batch_scatters.py::test_in_place",),
        "equivalent: ReuseBuffers makes what reads the data before an operand of the scatter",
    ),
    Mutant(
        "a caller's tensor written before its indices are known to be good",
        "tvm_scatter/bounds/device_check.py",
        "if problem.in_place and not temporary:",
        "if problem.in_place and temporary:",
        ("tests/test_bounds.py::test_nothing_is_written_when_it_raises[cuda-in_place]",),
    ),
    Mutant(
        "a caller's tensor written before the host waits for the others",
        _PASSES + "defer_bounds_check.py",
        "return call.in_place and not call.temporary",
        "return False",
        (_TOGETHER + "test_a_tensor_that_the_caller_asks_to_overwrite[cuda]",),
    ),
    Mutant(
        "somebody else's code called before the host waits",
        _PASSES + "defer_bounds_check.py",
        "return unknown or may_write(value)",
        "return may_write(value)",
        (_TOGETHER + "test_others_code_is_not_called_after_a_bad_index[cuda]",),
    ),
    Mutant(
        "somebody else's kernel that writes before the host waits",
        _PASSES + "defer_bounds_check.py",
        "return unknown or may_write(value)",
        "return unknown",
        (_TOGETHER + "test_a_tensor_that_somebody_elses_kernel_overwrites[cuda]",),
    ),
    Mutant(
        "sizes that differ pass for equal",
        "tvm_scatter/bounds/size_check.py",
        "with T.If(left != right):",
        "with T.If(left < right):",
        ("tests/test_equal_sizes.py::test_sizes_that_differ[llvm-raise]",),
    ),
    Mutant(
        "captured although one function calls another",
        "tvm_scatter/pipelines.py",
        "    if called_functions(mod):",
        "    if False and called_functions(mod):",
        (
            "tests/test_cuda_graphs.py::test_functions_that_are_called_have_memory_of_their_own"
            "[simulated]",
        ),
    ),
)

_STRATEGY = "tvm_scatter/selection/strategy.py"

SELECTION = (
    Mutant(
        "nothing beside what takes some sizes only",
        "tvm_scatter/selection/undominated.py",
        "if all(names[place] in partial for place in chosen):",
        "if not chosen:",
        ("tests/test_choice_at_run_time.py::test_there_is_one_that_takes_all_sizes",),
    ),
    Mutant(
        "an implementation that is not deterministic",
        _STRATEGY,
        "if problem.needs_order and not implementation.deterministic:",
        "if problem.needs_order and implementation.deterministic is None:",
        ("tests/test_strategy.py::test_what_cannot_be_forced",),
    ),
    Mutant(
        "the lowest level first",
        _STRATEGY,
        "self._entries.sort(key=lambda entry: -entry[0])",
        "self._entries.sort(key=lambda entry: entry[0])",
        ("tests/test_strategy.py::test_order_is_by_level",),
    ),
    Mutant(
        "sums of 16 bits that are rounded as often as there are updates",
        _STRATEGY,
        "many = self.backend.rounds_once or has_many_updates(problem)",
        "many = self.backend.rounds_once",
        ("tests/test_rounding.py::test_a_few_sums_on_gpus_are_those_of_pytorch",),
    ),
    Mutant(
        "of equally fast records the default is not chosen",
        _STRATEGY,
        "return same[0] if same[0].microseconds <= _TIE * fastest.microseconds else fastest",
        "return fastest",
        (_TIES + "[1.01-tiled]",),
    ),
    Mutant(
        "the default is chosen where a record is faster",
        _STRATEGY,
        "return same[0] if same[0].microseconds <= _TIE * fastest.microseconds else fastest",
        "return same[0]",
        (_TIES + "[1.03-partitioned]",),
    ),
    Mutant(
        "a record that does not fit is the best",
        _RECORDS,
        "if usable((each[0], dict(each[1])))",
        "if True",
        ("tests/test_strategy.py::test_the_next_best_record_counts_where_the_best_does_not_fit",),
    ),
    Mutant(
        "a record with knobs of another version",
        _STRATEGY,
        "if name not in knobs or value not in knobs[name]:",
        "if knobs is None:",
        ("tests/test_strategy.py::test_a_record_that_no_longer_fits_does_no_harm",),
    ),
    Mutant(
        "a record of an implementation that refuses",
        _STRATEGY,
        "        if refusal is not None:\n",
        "        if refusal is None and implementation is None:\n",
        ("tests/test_strategy.py::test_the_next_best_record_counts_where_the_best_does_not_fit",),
    ),
    Mutant(
        "coefficients do not count",
        "tvm_scatter/selection/cost.py",
        "name: value * factors.get(name, 1.0) for name, value",
        "name: value for name, value",
        ("tests/test_strategy.py::test_coefficients_count",),
    ),
    Mutant(
        "symbolic sizes have one implementation",
        "tvm_scatter/selection/undominated.py",
        ".max() > _TOLERATED:",
        ".max() > _TOLERATED and not chosen:",
        ("tests/test_strategy.py::test_symbolic_sizes_keep_what_some_of_them_need",),
    ),
    Mutant(
        "a missing hard case wins",
        _RECORDS,
        "        if len(seen) == most\n",
        "        if len(seen) <= most\n",
        ("tests/test_tuning.py::test_one_missing_hard_case_does_not_win",),
    ),
    Mutant(
        "the slowest record first",
        _RECORDS,
        "key=lambda each: (each.microseconds,",
        "key=lambda each: (-each.microseconds,",
        ("tests/test_strategy.py::test_a_tuned_record_is_found",),
    ),
    Mutant(
        "records for each bounds policy apart",
        _RECORDS,
        'json.loads(replace(problem, bounds="drop").to_json())',
        "json.loads(problem.to_json())",
        ("tests/test_strategy.py::test_a_tuned_record_is_found",),
    ),
    Mutant(
        "a knob decided as its neighbour",
        _RECORDS,
        "decision = None if config is None else list(values).index(config[name])",
        "decision = None if config is None else list(values).index(config[name]) // 2",
        ("tests/test_tuning.py::test_every_candidate_is_valid_and_survives_a_record",),
    ),
)

_STORE = "tvm_scatter/runtime/kernel_cache/store.py"
_CACHE = "tests/test_kernel_cache.py::"

CACHE = (
    Mutant(
        "an entry that answers to any key",
        _STORE,
        'hashlib.sha256(key.encode() + b"\\n" + binary)',
        "hashlib.sha256(binary)",
        (_CACHE + "test_an_entry_answers_to_its_own_key_only",),
    ),
    Mutant(
        "a damaged entry is used",
        _STORE,
        "return binary if (magic, digest) == (_MAGIC, _digest(key, binary)) else None",
        "return binary if magic == _MAGIC else None",
        (_CACHE + "test_a_damaged_entry_is_a_miss_and_is_replaced",),
    ),
    Mutant(
        "a folder of another user is used",
        _STORE,
        "if status.st_uid != os.geteuid():",
        "if status.st_uid < 0:",
        (_CACHE + "test_a_folder_of_another_user_is_not_used",),
    ),
    Mutant(
        "the most recently used go first",
        _STORE,
        "return sorted(filter(None, found), key=lambda entry: entry.used)",
        "return sorted(filter(None, found), key=lambda entry: -entry.used)",
        (_CACHE + "test_the_least_recently_used_go_first",),
    ),
    Mutant(
        "every process compiles",
        "tvm_scatter/runtime/kernel_cache/compile.py",
        "binary = store.read(key)  # another process may have been faster",
        "binary = None",
        (_CACHE + "test_what_another_process_compiles_meanwhile_is_taken",),
    ),
    Mutant(
        "kernels of one architecture for another",
        "tvm_scatter/runtime/kernel_cache/compile.py",
        "parts = [source, str(arch), *dependencies(source)]",
        "parts = [source, *dependencies(source)]",
        (_CACHE + "test_the_key_holds_source_and_architecture",),
    ),
    Mutant(
        "a limit of megabytes counted in kilobytes",
        "tvm_scatter/runtime/kernel_cache/settings.py",
        '"M": 1 << 20',
        '"M": 1 << 10',
        (_CACHE + "test_size_limit",),
    ),
)

_IMPORTERS = "tvm_scatter/importers/"
_TORCH = "tests/test_torch_import.py::"
_ONNX = "tests/test_onnx_import.py::"

IMPORTERS = (
    Mutant(
        "ranks that count the position itself",
        "tvm_scatter/importers/torch/mask.py",
        "entry = total[position] - 1",
        "entry = total[position]",
        (_TORCH + "test_masks_of_several_axes",),
    ),
    Mutant(
        "a mask of two axes counted along the last",
        "tvm_scatter/importers/torch/compaction.py",
        "    stride = number_of(shape[axis + 1 :])",
        "    stride = number_of(shape[axis:])",
        (_TORCH + "test_index_put",),
    ),
    Mutant(
        "index_add with negative indices",
        "tvm_scatter/importers/torch/index.py",
        "wrap_negative=call.origin not in _WITHOUT_NEGATIVE,",
        "wrap_negative=True,",
        (_TORCH + "test_indices_out_of_bounds",),
    ),
    Mutant(
        "accumulate taken for a write",
        "tvm_scatter/importers/torch/index.py",
        '            "add" if add else "update",',
        '            "update",',
        (_TORCH + "test_index_put",),
    ),
    Mutant(
        "alpha forgotten",
        "tvm_scatter/importers/torch/scatter.py",
        "        source = _scale(call, source, alpha)\n",
        "        source = _scale(call, source, 1)\n",
        (_TORCH + "test_without_decomposition",),
    ),
    Mutant(
        "a padding row that gets a gradient",
        "tvm_scatter/importers/torch/scatter.py",
        "    if padding >= 0:",
        "    if padding > 0:",
        (_TORCH + "test_embedding_gradient",),
    ),
    Mutant(
        "a diagonal above taken for one below",
        "tvm_scatter/importers/torch/slice.py",
        "starts = {rows: max(-offset, 0), columns: max(offset, 0)}",
        "starts = {rows: max(offset, 0), columns: max(-offset, 0)}",
        (_TORCH + "test_views",),
    ),
    Mutant(
        "a slice with a step one row too long",
        "tvm_scatter/importers/torch/slice.py",
        "return max(0, -(-(end - start) // step))",
        "return max(0, (end - start) // step + 1)",
        (_TORCH + "test_views",),
    ),
    Mutant(
        "a circular cache that does not wrap",
        _IMPORTERS + "onnx_scatter.py",
        'return tirx.floormod(at, extent) if mode == "circular" else at',
        'return tirx.floormod(at, extent + 1) if mode == "circular" else at',
        (_ONNX + "test_tensor_scatter",),
    ),
    Mutant(
        "a sum before it was there",
        _IMPORTERS + "onnx_scatter.py",
        '    (0, ("none",)),',
        '    (0, ("none", "add")),',
        (_ONNX + "test_bad_attributes",),
    ),
    Mutant(
        "starts of the wrong batch entry",
        _IMPORTERS + "onnx_scatter.py",
        'start = given(tirx.floordiv(p, lines_of_entry)).astype("int64")',
        'start = given(tirx.floormod(p, lines_of_entry)).astype("int64")',
        (_ONNX + "test_tensor_scatter",),
    ),
)

_KNOWN = "tests/test_index_facts.py::"
_TRUE = _KNOWN + "test_what_is_known_is_true[0]"
_ANALYSIS = "tvm_scatter/passes/analysis/"

_TOGETHER = "tests/test_share_checks.py::"

FACTS = (
    Mutant(
        "a check of another extent is taken for one's own",
        "tvm_scatter/passes/share_checks.py",
        "and all(map(same_size, self.extents, other.extents))",
        "and len(self.extents) == len(other.extents)",
        (_TOGETHER + "test_which_are_checked_together",),
    ),
    Mutant(
        "negative indices are good for those that do not wrap",
        "tvm_scatter/passes/share_checks.py",
        "self.members if not each.wrap_negative)",
        "self.members if each.wrap_negative)",
        ("tests/test_share_checks.py::test_a_negative_index_is_an_error_if_one_takes_none",),
    ),
    Mutant(
        "a caller's tensor is overwritten while its indices are checked",
        "tvm_scatter/lowering/lower.py",
        "if call.checked and not (call.in_place and not call.temporary):",
        "if call.checked:",
        (_TOGETHER + "test_a_callers_tensor_is_overwritten_after_a_check_of_its_own",),
    ),
    Mutant(
        "indices that are being checked on a device are trusted",
        "tvm_scatter/selection/backend.py",
        'return "trust" if self.device_check is None else "drop"',
        'return "trust"',
        (_TOGETHER + "test_a_callers_tensor_is_overwritten_after_a_check_of_its_own",),
    ),
    Mutant(
        "what ascends from below zero is in order",
        "tvm_scatter/passes/known_orders.py",
        "return facts is not None and facts.ascending and known.ranges.at_most(0, facts.range.low)",
        "return facts is not None and facts.ascending",
        ("tests/test_known_orders.py::test_what_is_known_to_ascend",),
    ),
    Mutant(
        "a constant that is out of bounds has an order",
        "tvm_scatter/passes/known_orders.py",
        "places.min() < 0 or places.max() >= size",
        "places.min() < 0",
        ("tests/test_known_orders.py::test_the_order_of_a_constant",),
    ),
    Mutant(
        "what may leave a row is taken to write all",
        _ANALYSIS + "index_claims.py",
        "if not (claimed.unique and claimed.in_range) or not shape or not index:",
        "if not claimed.in_range or not shape or not index:",
        (_KNOWN + "test_what_is_written_everywhere_is_not_read",),
    ),
    Mutant(
        "a remainder is less than it may be",
        _ANALYSIS + "integer_ranges.py",
        "return Range(0, self._plus(right.high, -1))",
        "return Range(0, self._plus(right.high, -2))",
        (_TRUE,),
    ),
    Mutant(
        "a cast keeps what the type cannot hold",
        _ANALYSIS + "integer_ranges.py",
        "if not known.low <= bound <= known.high:",
        "if not known.low <= bound:",
        (_TRUE,),
    ),
    Mutant(
        "the quotient of a negative number is in the range of its dividend",
        _ANALYSIS + "index_facts.py",
        "    _expect_no_sign(ranges, left)\n    return _floor_divide(ranges, left, right)",
        "    return _floor_divide(ranges, left, right)",
        (_TRUE, _KNOWN + "test_by_eye"),
    ),
    Mutant(
        "what is broadcast is distinct",
        _ANALYSIS + "index_rules/elementwise.py",
        "distinct=frozenset(axis + offset for axis in facts.distinct if kept[axis]),",
        "distinct=frozenset(axis + offset for axis in facts.distinct),",
        (_TRUE,),
    ),
    Mutant(
        "what is flipped ascends",
        _ANALYSIS + "index_rules/parts.py",
        "    return facts.but(ascending=facts.uniform)\n\n\ndef first_operand",
        "    return facts\n\n\ndef first_operand",
        (_TRUE,),
    ),
    Mutant(
        "a bad index reads an element",
        _ANALYSIS + "index_rules/accesses.py",
        "return IndexFacts(known.ranges.union(facts.range, exactly(0)))",
        "return facts.but(distinct=frozenset(), ascending=facts.uniform)",
        (_TRUE,),
    ),
    Mutant(
        "pieces that meet are distinct",
        _ANALYSIS + "index_rules/parts.py",
        "above = ranges.at_most(ranges.add(exactly(found.high), exactly(1)).low, part.range.low)",
        "above = ranges.at_most(found.high, part.range.low)",
        (_KNOWN + "test_by_eye",),
    ),
    Mutant(
        "a sort of what may be NaN is a permutation",
        _ANALYSIS + "index_rules/sorting.py",
        'integral = "int" in str(data.ty.dtype)',
        "integral = True",
        (_KNOWN + "test_by_eye",),
    ),
    Mutant(
        "the order of rows is a permutation of columns",
        _ANALYSIS + "index_rules/accesses.py",
        "return inside and axis in facts.distinct and same_size(length, count)",
        "return inside and bool(facts.distinct) and same_size(length, count)",
        ("tests/test_permuted_rows.py::test_what_is_no_permutation_is_sorted",),
    ),
    Mutant(
        "the inverse of an order of rows is written along columns",
        "tvm_scatter/passes/permutations.py",
        "line = [size if at == axis else 1 for at, size in enumerate(shape)]",
        "line = [size if at != axis else 1 for at, size in enumerate(shape)]",
        ("tests/test_permuted_rows.py::test_ranks",),
    ),
    Mutant(
        "as many as are asked for are sorted",
        _ANALYSIS + "index_rules/sorting.py",
        "count < 1 or not known.ranges.at_most(count, size)",
        "count < 1",
        (_KNOWN + "test_by_eye",),
    ),
    Mutant(
        "elements that are computed from two axes differ along each",
        _ANALYSIS + "element_facts.py",
        "apart = len(used) == len(set(used))",
        "apart = True",
        (_KNOWN + "test_functions_by_eye",),
    ),
    Mutant(
        "what is read outside of a tensor is one of its elements",
        _ANALYSIS + "element_facts.py",
        "if not self._ranges.inside(place.range, Range(0, last)):",
        "if False:",
        (_KNOWN + "test_functions_by_eye",),
    ),
    Mutant(
        "an index that counts from the end is another one",
        _ANALYSIS + "index_claims.py",
        "unique = differ and not wraps",
        "unique = differ",
        (_KNOWN + "test_what_a_scatter_need_not_check",),
    ),
    Mutant(
        "the extent itself is in range",
        _ANALYSIS + "index_claims.py",
        "last = known.ranges.add(size, Range(-1, -1)).high",
        "last = size.high",
        (_KNOWN + "test_what_a_scatter_need_not_check",),
    ),
    Mutant(
        "columns differ, so pairs do",
        _ANALYSIS + "index_claims.py",
        "if axes - agreed <= distinct:",
        "if distinct:",
        (_KNOWN + "test_pairs_of_indices",),
    ),
)

_ROWS = "tests/test_row_sums.py::"

ROW_SUMS = (
    Mutant(
        "threads of two rows add up what they have",
        "tvm_scatter/schedules/gpu/row_kernel.py",
        "distance = self.kernel.form.group // 2",
        "distance = self.kernel.form.group",
        (_ROWS + "test_no_edges[cuda-drop]",),
    ),
    Mutant(
        "what is read again beyond the end of a row is added",
        "tvm_scatter/schedules/gpu/row_kernel.py",
        "taken = over_lanes(self.accesses.lanes, one, False)\n        return taken if",
        "return over_lanes(self.accesses.lanes, one, False)\n        return taken if",
        (_ROWS + "test_random_row_sums[cuda-False]",),
    ),
    Mutant(
        "what others read as well is computed again",
        "tvm_scatter/passes/analysis/row_producers.py",
        "not again and _is_needed(",
        "again and _is_needed(",
        (_ROWS + "test_a_message_with_another_reader_stays_in_memory[llvm]",),
    ),
    Mutant(
        "no index of rows that a sum reads itself is checked",
        "tvm_scatter/passes/fuse_row_reductions.py",
        "_Fused(function, leaves, [each.value for each in checked], divisor)",
        "_Fused(function, leaves, [], divisor)",
        (_ROWS + "test_a_bad_index_raises[llvm-3]",),
    ),
)

_SHORT = "tests/test_short_rows.py::"
_LONG = "tests/test_long_softmax.py::"
_COMPUTED = "tests/test_computed_rows.py::"

REDUCTIONS = (
    Mutant(
        "what is read by a result is read before it is known",
        "tvm_scatter/schedules/gpu/unrolled_reduction.py",
        "return None if _waits(written) else written",
        "return written",
        ("tests/test_rows_together.py::test_what_waits_for_a_result_is_read_behind_it",),
    ),
    Mutant(
        "a reduction begins with its first element",
        "tvm_scatter/schedules/gpu/unrolled_reduction.py",
        "for turn in product(*(range(size) for _, size in reduced)):",
        "for turn in list(product(*(range(size) for _, size in reduced)))[1:]:",
        ("tests/test_rows_together.py::test_literal_cases",),
    ),
    Mutant(
        "only the first thread of a row has what was reduced",
        "tvm_scatter/schedules/gpu/warp_rows.py",
        'schedule.set_scope(each, number, "local")',
        'schedule.set_scope(each, number, "shared")',
        (_SHORT + "test_a_short_row_is_a_warps[49]",),
    ),
    Mutant(
        "rows are computed again for each reduction of them",
        "tvm_scatter/lowering/computed_rows.py",
        "len(places[at]) < 2",
        "len(places[at]) < 9",
        (_COMPUTED + "test_an_element_is_read_once",),
    ),
    Mutant(
        "a thread keeps an element of each row of its elements",
        "tvm_scatter/schedules/gpu/kept_rows.py",
        "place = place * size + index",
        "place = index",
        (_COMPUTED + "test_rows_of_several_axes",),
    ),
    Mutant(
        "what a product would compute is computed by a normalisation",
        "tvm_scatter/passes/analysis/row_groups.py",
        "self._rows[var] is None and fusion_pattern(function) == ROOT",
        "self._rows[var] is None and fusion_pattern(function) == REDUCTION",
        (_COMPUTED + "test_a_product_keeps_what_it_computes_behind_it",),
    ),
    Mutant(
        "reductions of few elements are TVM's",
        "tvm_scatter/lowering/one_reduction.py",
        "_MOST_BESIDE if self.beside else _MOST_APART",
        "0",
        (_SHORT + "test_few_elements_are_reduced_by_one_thread",),
    ),
    Mutant(
        "keys of vectors are turned around by an operator of integers",
        "tvm_scatter/importers/torch/ordering.py",
        "found ^ -1 if descending",
        "~found if descending",
        (_SHORT + "test_keys_behind_a_product_compile",),
    ),
    Mutant(
        "a greater element does not correct the sum so far",
        "tvm_scatter/schedules/gpu/exponential_sums.py",
        "self.total[0] * tirx.exp(lower)",
        "self.total[0]",
        (_LONG + "test_readers[cuda-torch.float32-known]",),
    ),
    Mutant(
        "what is read again beyond the end of a row is summed",
        "tvm_scatter/schedules/gpu/exponential_sums.py",
        "always = rest == 0 or",
        "always = rest > 0 or",
        (_LONG + "test_readers[cuda-torch.float32-known]",),
    ),
    Mutant(
        "a softmax that the model returns is computed again for its sums",
        "tvm_scatter/passes/analysis/softmax_readers.py",
        "if producer.var in self._bindings.returned or not readers:",
        "if not readers:",
        (_LONG + "test_what_is_returned_is_left_alone",),
    ),
    Mutant(
        "halves are multiplied and added up as halves",
        "tvm_scatter/passes/row_products.py",
        "if str(row.ty.dtype) != dtype:",
        "if not dtype:",
        ("tests/test_row_products.py::test_halves_are_added_up_in_single_precision[llvm-torch]",),
    ),
    Mutant(
        "what shares memory with a donated tensor is not looked for",
        "tvm_scatter/bounds/alias_check.py",
        "tirx.any(start >= high, low >= end)",
        "tirx.any(start >= low, low >= end)",
        ("tests/test_torch_buffers.py::test_a_buffer_that_is_passed_as_the_input_too[llvm]",),
    ),
    Mutant(
        "no updates are read as if there were some",
        "tvm_scatter/lowering/neighbours.py",
        "int(size) == 0 for size in updates.shape",
        "int(size) < 0 for size in updates.shape",
        ("tests/test_torch_empty.py::test_nothing_is_filled_with_a_number",),
    ),
    Mutant(
        "conditions that round are not understood",
        "tvm_scatter/problem/size_conditions.py",
        'func=ast.Name(id="round")',
        'func=ast.Name(id="rounded")',
        ("tests/test_exported_sizes.py::test_conditions_that_are_no_range[llvm-middle--]",),
    ),
)

_TURNED = "tests/test_turn_lines.py::"
_BY_PLACE = "tests/test_updates_by_place.py::"
_TRANSPOSED = "tests/test_transposes.py::"

LINES = (
    Mutant(
        "the first entry has no place",
        "tvm_scatter/passes/updates_by_place.py",
        "relax.op.greater_equal(numbers, zero)",
        "relax.op.greater(numbers, zero)",
        (_BY_PLACE + "test_literal[cuda-sliced]",),
    ),
    Mutant(
        "any order of channels is that of the axis",
        "tvm_scatter/passes/entries_of_places.py",
        "if np.array_equal(positions.reshape(-1), np.arange(positions.size)):",
        "if positions.size:",
        (_BY_PLACE + "test_what_runs_along_no_axis[cuda]",),
    ),
    Mutant(
        "two axes that are run along together are two slices",
        "tvm_scatter/passes/entries_of_places.py",
        "if len(varies) != 1 or not all(same_size(shape[varies[0]], 1) for shape in others):",
        "if len(varies) != 1 or not others:",
        (_BY_PLACE + "test_what_runs_along_no_axis[cuda]",),
    ),
    Mutant(
        "weights of another scatter are those of the first",
        "tvm_scatter/passes/emit_rows_of_lines.py",
        "used = values[:1] if same else values",
        "used = values[:1]",
        (_TURNED + "test_a_chain_is_one_scatter[llvm]",),
    ),
    Mutant(
        "a joined store need not be in order",
        "tvm_scatter/passes/emit_rows_of_lines.py",
        '"ordered": last_wins or first.ordered,',
        '"ordered": False,',
        (_TURNED + "test_the_last_of_a_chain_wins",),
    ),
    Mutant(
        "a result that is read twice is dropped",
        "tvm_scatter/passes/turn_lines.py",
        "and definitions.uses[each.scatter.data] == 1",
        "and definitions.uses[each.scatter.data] >= 1",
        (_TURNED + "test_a_second_reader_ends_a_chain",),
    ),
    Mutant(
        "updates that are broadcast are lines",
        "tvm_scatter/passes/turn_lines.py",
        "if not same_size(elements, lines * scatter.count):",
        "if elements is None:",
        (_TURNED + "test_two_indices_and_updates_that_are_broadcast[llvm]",),
    ),
    Mutant(
        "the second of several scatters has the entries of the first",
        "tvm_scatter/passes/emit_rows_of_lines.py",
        "rows = [reshaped(each, [1, self._count], self.emit) for each in vectors]",
        "rows = [reshaped(vectors[0], [1, self._count], self.emit) for each in vectors]",
        (_TURNED + "test_one_module_for_images_of_all_sizes[llvm]",),
    ),
    Mutant(
        "a product of sizes is known without all of its factors",
        "tvm_scatter/lowering/own_sizes.py",
        "        if at is None:\n            return None\n        del left[at]",
        "        if at is not None:\n            del left[at]",
        (_TURNED + "test_one_module_for_images_of_all_sizes[llvm]",),
    ),
    Mutant(
        "steps along axes of unknown sizes are those of the next axis",
        "tvm_scatter/schedules/gpu/transposition.py",
        "        place = place * width + part",
        "        place = place + part * width",
        (_TRANSPOSED + "test_symbolic_sizes[cuda]",),
    ),
    Mutant(
        "parts of a known table are longer than the cache holds",
        "strategies/cuda/steps/column_parts.py",
        "        elif too_little:",
        "        elif not too_little:",
        ("tests/test_parts_at_run_time.py::test_messages",),
    ),
    Mutant(
        "squares are not turned in registers",
        "tvm_scatter/schedules/gpu/transpose_kernel.py",
        "value = square[which * lanes + line]",
        "value = square[line * lanes + which]",
        (_TRANSPOSED + "test_each_kind[cuda]",),
    ),
    Mutant(
        "what is beyond the last column is written",
        "tvm_scatter/schedules/gpu/transpose_kernel.py",
        "inside.append(column * lanes < self._int(found.sizes[found.across]))",
        "inside.append(column >= 0)",
        (_TRANSPOSED + "test_each_kind[cuda]",),
    ),
)

_PRODUCTS = "tests/test_product_rows.py::"

PRODUCTS = (
    Mutant(
        "a part begins a vector later",
        "tvm_scatter/schedules/gpu/guarded_vectors.py",
        "tirx.const(int(begin) // lanes, axis.ty.dtype)",
        "tirx.const(int(begin) // lanes + 1, axis.ty.dtype)",
        (_PRODUCTS + "test_bits_are_those_of_rows_in_memory",),
    ),
    Mutant(
        "parts that begin within a vector are chosen by the vector",
        "tvm_scatter/schedules/gpu/guarded_vectors.py",
        "int(begin) % lanes or axis not in axes",
        "axis not in axes",
        (_PRODUCTS + "test_results",),
    ),
    Mutant(
        "rows that others read as well are computed by a product",
        "tvm_scatter/passes/analysis/product_rows.py",
        "is_alone = all(reader.var in inside",
        "is_alone = any(reader.var in inside",
        (_PRODUCTS + "test_rows_that_others_read_are_in_memory",),
    ),
    Mutant(
        "products read vectors of tensors that begin between two",
        "tvm_scatter/schedules/gpu/guarded_vectors.py",
        "tirx.IfThenElse(aligned, vectors, renamed(elements))",
        "vectors",
        (_PRODUCTS + "test_rows_at_any_address",),
    ),
)

SMALLEST = (
    Mutant(
        "of equal elements the last ones are taken",
        "strategies/cuda/device/smallest.cuh",
        "const uint32 earlier = min(ties + (before >> 16), taken.ties);",
        "const uint32 earlier = min(ties + (before >> 16) + 1, taken.ties);",
        ("tests/test_smallest.py::test_all_are_equal",),
    ),
    Mutant(
        "elements below the limit are not counted",
        "strategies/cuda/device/smallest.cuh",
        "below = found;",
        "below = 0;",
        ("tests/test_smallest.py::test_all_are_equal",),
    ),
    Mutant(
        "the part of a line does not know where it begins",
        "strategies/cuda/device/smallest.cuh",
        "inner, threadIdx.x, nullptr, begin);",
        "inner, threadIdx.x, nullptr);",
        ("tests/test_smallest.py::test_lengths",),
    ),
    Mutant(
        "the largest integers are found as if none were negative",
        "tvm_scatter/lowering/legalize_smallest.py",
        "data(*at) ^ -1",
        "-data(*at)",
        ("tests/test_smallest.py::test_shapes_and_axes",),
    ),
)

SORTS = (
    Mutant(
        "of equal elements the last one comes first",
        "strategies/cuda/device/sort_lines.cuh",
        "(other == key && i < at)",
        "(other == key && i > at)",
        ("tests/test_sorts.py::test_shapes_and_axes",),
    ),
    Mutant(
        "what is behind a line is sorted with it",
        "strategies/cuda/device/sort_lines.cuh",
        "number_in_block(i, turns) < length ? sort_digit(held[i], digit) : kSortDigits - 1",
        "sort_digit(held[i], digit)",
        ("tests/test_sorts.py::test_lengths",),
    ),
    Mutant(
        "a tile tells what it has, and not what there is up to its end",
        "strategies/cuda/device/sort_tiles.cuh",
        "kWholeCount | (earlier + own)",
        "kWholeCount | own",
        ("tests/test_sorts.py::test_lengths",),
    ),
    Mutant(
        "lines are sorted by one digit of their number",
        "strategies/cuda/sort_tiles.py",
        "ceil_div((lines - 1).bit_length(), _DIGIT_BITS)",
        "min(1, (lines - 1).bit_length())",
        ("tests/test_sorts.py::test_many_lines_in_tiles",),
    ),
    Mutant(
        "a scatter adds up one row less",
        "tvm_scatter/lowering/added_rows.py",
        "in range(int(rows.shape[axis])))",
        "in range(max(1, int(rows.shape[axis]) - 1)))",
        ("tests/test_added_rows.py::test_weighted_bases",),
    ),
)

_OF_ROWS = "tests/test_messages_of_rows.py::"

MESSAGES_OF_ROWS = (
    Mutant(
        "what is read for a row is taken for that of the next as well",
        "strategies/cuda/codegen/computed.py",
        "result.at[i] = (*this)[static_cast<Offset>(at + i)];",
        "result.at[i] = line<1>(find(at), static_cast<Offset>(i)).at[0];",
        (_OF_ROWS + "test_vectors_go_on_in_the_next_row",),
    ),
    Mutant(
        "the smaller of a 16-bit NaN and a number is the number",
        "strategies/cuda/codegen/expression.py",
        "        if b_is_number:",
        "        if True:",
        (_OF_ROWS + "test_numbers_that_are_none",),
    ),
    Mutant(
        "an index without a sign counts from the end",
        "tvm_scatter/emit/owned_updates.py",
        'if problem.wrap_negative and not problem.index_dtype.startswith("uint"):',
        "if problem.wrap_negative:",
        (_OF_ROWS + "test_an_index_without_a_sign_reads_the_only_row",),
    ),
)

_SIZES = "tests/test_exported_sizes.py::"

OUTSIDE_LOOK = (
    Mutant(
        "of nothing, a size is divided by none",
        "strategies/llvm/steps/ordered.py",
        "chunk = loops.settle(loops.maximum(1, ceil_div(keys, 256)))",
        "chunk = loops.maximum(1, ceil_div(keys, 256))",
        ("tests/test_no_elements.py::test_nothing_is_divided_by_the_size_of_nothing",),
    ),
    Mutant(
        "conditions of sizes are not checked",
        "tvm_scatter/passes/check_exported_sizes.py",
        "if set(names_of(condition)) <= places.keys():",
        "if False:",
        (_SIZES + "test_conditions_that_are_no_range",),
    ),
    Mutant(
        "conditions that tell sizes apart are checked",
        "tvm_scatter/importers/torch/exported_conditions.py",
        "case ast.Compare(ops=[ast.NotEq()]):\n            return True",
        "case ast.Compare(ops=[ast.NotEq()]):\n            return False",
        (_SIZES + "test_conditions_that_only_tell_sizes_apart_are_none",),
    ),
    Mutant(
        "conditions with floats are left out",
        "tvm_scatter/problem/size_conditions.py",
        'attr="sym_float"',
        'attr="sym_floats"',
        (_SIZES + "test_conditions_that_are_no_range",),
    ),
    Mutant(
        "a number of chunks that is known to be one is inferred",
        "tvm_scatter/importers/torch/constant_sizes.py",
        "if inferred is not None:",
        "if False:",
        ("tests/test_torch_chunks.py::test_all_rows_in_one_chunk",),
    ),
    Mutant(
        "axes that vary are squeezed",
        "tvm_scatter/importers/torch/slicing.py",
        "if seen is None or all(isinstance(size, int) for size in seen.shape):",
        "if True:",
        ("tests/test_torch_views.py::test_agrees_with_pytorch",),
    ),
    Mutant(
        "the last windows end with the padding",
        "tvm_scatter/importers/torch/pooled_values.py",
        "[before, before + stride - 1]",
        "[before, before]",
        ("tests/test_torch_extremes.py::test_averages_of_windows_with_a_divisor",),
    ),
    Mutant(
        "of several in a window that are no numbers the first is the maximum",
        "tvm_scatter/emit/pooled_windows.py",
        "tirx.any(better, tirx.isnan(value))",
        "tirx.any(better, tirx.all(tirx.isnan(value), tirx.Not(tirx.isnan(known))))",
        ("tests/test_max_pool.py::test_literal_cases[llvm]",),
    ),
    Mutant(
        "boxes whose score is no number are the worst",
        "tvm_scatter/importers/torch/boxes.py",
        "scores = keys(call, scores)",
        "scores = keys(call, scores, last=False)",
        ("tests/test_suppression.py::test_torchvision",),
    ),
    Mutant(
        "a constant argument stays an input",
        "tvm_scatter/importers/torch/plain_inputs.py",
        "if not constants:",
        "if True:",
        ("tests/test_torch_plain_inputs.py::test_constants_are_left_out",),
    ),
    Mutant(
        "conditions on numbers are forgotten",
        "tvm_scatter/importers/torch/exported_conditions.py",
        "if name in self._numbers:",
        "if False:",
        ("tests/test_torch_plain_inputs.py::test_a_number_beyond_what_was_exported",),
    ),
    Mutant(
        "a result may divide by zero",
        "tvm_scatter/importers/torch/plain_inputs.py",
        "return without_zero_divisors(results) if is_number else results",
        "return results",
        ("tests/test_torch_plain_inputs.py::test_results_that_are_no_tensors",),
    ),
    Mutant(
        "sums of sizes have no names",
        "tvm_scatter/fusion/named_sizes.py",
        "    if not once:",
        "    if True:",
        ("tests/test_named_sizes.py::test_results",),
    ),
    Mutant(
        "sums of 32 bits get names of 64",
        "tvm_scatter/fusion/named_sizes.py",
        "for size in sizes if str(size.ty) == _DTYPE]",
        "for size in sizes]",
        ("tests/test_named_sizes_by_hand.py::test_transposes",),
    ),
    Mutant(
        "a multiple of a sum is the sum",
        "tvm_scatter/fusion/named_sizes.py",
        "return name if times == 1 else name * times",
        "return name",
        ("tests/test_named_sizes.py::test_results",),
    ),
    Mutant(
        "integers are divided by a size of zero",
        "tvm_scatter/importers/torch/integer_quotients.py",
        "if isinstance(operands[1], int) and operands[1] not in _ENDING:",
        "if not arithmetic.is_tensor(operands[1]):",
        ("tests/test_torch_zero_divisors.py::test_division",),
    ),
    Mutant(
        "small doubles are zero in CUDA",
        "tvm_scatter/schedules/exact_doubles.py",
        'return float(f"{value:.15f}") != value',
        "return False",
        ("tests/test_exact_doubles.py::test_constants",),
    ),
    Mutant(
        "heads of gradients lie apart",
        "tvm_scatter/importers/torch/attention_layout.py",
        "        (_ON_CPU, 0),\n",
        "",
        ("tests/test_torch_training.py::test_heads_of_attention_side_by_side",),
    ),
    Mutant(
        "a row that sees nothing has no gradients",
        "tvm_scatter/importers/torch/attention.py",
        "    if bias is not None:\n        # A row",
        "    if False:\n        # A row",
        ("tests/test_torch_training.py::test_attention",),
    ),
    Mutant(
        "one pixel is divided by no gaps",
        "tvm_scatter/importers/torch/corrected.py",
        "[torch.sym_max(each, 2) for each in sizes]",
        "sizes",
        ("tests/test_torch_size_arguments.py::test_images_of_one_row",),
    ),
    Mutant(
        "a place that depends on a size is unknown",
        "tvm_scatter/fusion/op_patterns.py",
        "    if int(marked.attrs[_PATTERN]) > _INJECTIVE:",
        "    if int(marked.attrs[_PATTERN]) >= 0:",
        ("tests/test_concatenations.py::test_one_function_where_sizes_are_unknown",),
    ),
    Mutant(
        "a choice by place keeps all elements apart",
        "tvm_scatter/schedules/gpu/choices_by_place.py",
        "    return int(known.coeff) % lanes == 0 and int(known.base) % lanes == 0",
        "    return False",
        ("tests/test_concatenations.py::test_rows_are_read_in_vectors",),
    ),
    Mutant(
        "a row is found by its last axis alone",
        "tvm_scatter/schedules/gpu/positions.py",
        "        position = position * size + index",
        "        position = position + index",
        ("tests/test_concatenations.py::test_results",),
    ),
    Mutant(
        "positions are divided in another order",
        "tvm_scatter/schedules/gpu/gather_kernel.py",
        "tirx.Cast(str(cell.dtype), places[axis]), [0])",
        "tirx.Cast(str(cell.dtype), places[axes[0]]), [0])",
        ("tests/test_concatenations.py::test_positions_that_32_bits_do_not_count",),
    ),
    Mutant(
        "what is joined agrees along its axis, too",
        "tvm_scatter/importers/torch/agreeing_axes.py",
        " if not (along and -at == last)}",
        "}",
        ("tests/test_torch_equal_sizes.py::test_operands_that_agree_along_some_axes",),
    ),
    Mutant(
        "products agree along no axis",
        "tvm_scatter/importers/torch/agreeing_axes.py",
        "    if name in _PRODUCTS:",
        "    if False:",
        ("tests/test_torch_equal_sizes.py::test_operands_that_agree_along_some_axes",),
    ),
    Mutant(
        "one by a formula is not one",
        "tvm_scatter/importers/torch/slicing.py",
        "if is_one(seen.shape[axis], shape[axis]))",
        "if isinstance(seen.shape[axis], int) and seen.shape[axis] == 1)",
        ("tests/test_torch_equal_sizes.py::test_sizes_that_pytorch_computes",),
    ),
    Mutant(
        "sizes of parts that are computed are TVM's",
        "tvm_scatter/importers/torch/slicing.py",
        "for size in call.node.args[1]) and",
        "for size in sizes) and",
        ("tests/test_torch_equal_sizes.py::test_sizes_that_pytorch_computes",),
    ),
    Mutant(
        "a constant under another name is freed",
        "tvm_scatter/passes/living_constants.py",
        "    if not any(is_constant(value.args[0]) for value in freed):",
        "    if True:",
        ("tests/test_size_check.py::test_a_constant_that_must_fit",),
    ),
    Mutant(
        "parameters lie at multiples of 64 bytes",
        "tvm_scatter/schedules/any_address.py",
        "    if not instead:",
        "    if True:",
        ("tests/test_alignment.py::test_inputs_of_other_operators_lie_anywhere",),
    ),
    Mutant(
        "each kernel brings along its headers",
        "tvm_scatter/runtime/shared_headers.py",
        "    if len(sources) < 2:",
        "    if True:",
        ("tests/test_shared_headers.py::test_a_module_has_each_header_once",),
    ),
    Mutant(
        "vectors are as long as others have elements",
        "tvm_scatter/schedules/gpu/accesses.py",
        "min(lanes, _VECTOR_BYTES // element_bytes(tensor))",
        "lanes",
        ("tests/test_gathers.py::test_what_is_read_beside_is_wider",),
    ),
    Mutant(
        "vectors are as short as their elements",
        "tvm_scatter/schedules/vector_addresses.py",
        "lanes * element_bytes(tensor))",
        "element_bytes(tensor))",
        ("tests/test_alignment.py::test_kernels_say_where_inputs_must_begin",),
    ),
    Mutant(
        "one short number is written in vectors",
        "tvm_scatter/schedules/cpu/spatial.py",
        "    if not moves and any(",
        "    if False and any(",
        ("tests/test_cpu_schedules.py::test_rows_of_one_short_number",),
    ),
)

_LOOPS = "tests/test_one_loop.py::"
_FEW_ROWS = "tests/test_few_rows.py::"
_FEW_COLUMNS = "tests/test_few_columns.py::"
_OF_READS = "tests/test_products_of_reads.py::"
_UNKNOWN_SIZES = "tests/test_products_of_unknown_sizes.py::"
LOOPS = (
    Mutant(
        "parts of a concatenation begin at its first place",
        "tvm_scatter/lowering/one_loop.py",
        "places = [at + start for at, start in zip(place, part.begins, strict=True)]",
        "places = list(place)",
        (f"{_LOOPS}test_by_eye",),
    ),
    Mutant(
        "a result is computed before what it is computed from",
        "tvm_scatter/passes/analysis/shared_loops.py",
        "return all(self.position.get(each, -1) < first for each in leaves)",
        "return True",
        (f"{_LOOPS}test_what_comes_later",),
    ),
    Mutant(
        "what a product is followed by is computed apart",
        "tvm_scatter/passes/analysis/shared_loops.py",
        "if made and alone and (made.pattern == ROOT or operand in found):",
        "if False:",
        (f"{_LOOPS}test_what_tvm_fuses_stays_fused",),
    ),
    Mutant(
        "tensors wait for a product",
        "tvm_scatter/passes/analysis/shared_loops.py",
        "if self.products[last] > self.products[first]:",
        "if False:",
        (f"{_LOOPS}test_nothing_waits_for_a_product",),
    ),
    Mutant(
        "threads without a row of a matrix take the last one",
        "tvm_scatter/schedules/gpu/few_row_kernel.py",
        "taken if self.is_whole else tirx.IfThenElse(term < self.terms, taken, None)",
        "taken",
        (f"{_FEW_ROWS}test_what_is_no_number_stays_apart",),
    ),
    Mutant(
        "a product of few rows adds up one warp",
        "tvm_scatter/schedules/gpu/few_row_kernel.py",
        "for warp in range(_THREADS // _WARP)]",
        "for warp in range(1)]",
        (f"{_FEW_ROWS}test_what_is_no_number_stays_apart",),
    ),
    Mutant(
        "threads without a term of a row take the last ones",
        "tvm_scatter/schedules/gpu/few_column_kernel.py",
        "taken if self.is_whole else tirx.IfThenElse(first < self.term_count, taken, None)",
        "taken",
        (f"{_FEW_COLUMNS}test_what_is_around_them[cuda-False-unknown terms]",),
    ),
    Mutant(
        "threads that share out sums send what they keep",
        "tvm_scatter/schedules/gpu/few_column_kernel.py",
        "for each in (pair[::-1], pair))",
        "for each in (pair, pair[::-1]))",
        (f"{_FEW_COLUMNS}test_what_is_around_them[cuda-False-a gate]",),
    ),
    Mutant(
        "launches of too many blocks begin at the first one again",
        "tvm_scatter/schedules/gpu/bounded_launches.py",
        "{loop.loop_var: turn * most + block}",
        "{loop.loop_var: block}",
        (f"{_UNKNOWN_SIZES}test_more_blocks_than_a_launch_has",),
    ),
    Mutant(
        "rows that are counted by a formula are left to TVM",
        "tvm_scatter/schedules/gpu/named_extents.py",
        "    if not names:",
        "    if True:",
        (f"{_UNKNOWN_SIZES}test_rows_that_are_a_multiple_of_an_unknown_size",),
    ),
    Mutant(
        "a sum takes axes of what is read in another order",
        "tvm_scatter/passes/products_of_reads.py",
        "if terms != (last,) or [*outer, *columns] != wide or not",
        "if terms != (last,) or not",
        (f"{_OF_READS}test_columns_in_another_order",),
    ),
    Mutant(
        "each column computes the terms of a row",
        "tvm_scatter/passes/analysis/row_producers.py",
        "if refusal is None and not moves and binding.var in shared & behind_calls:",
        "if False:",
        (f"{_OF_READS}test_weights_are_read_where_they_lie",),
    ),
    Mutant(
        "what is read is moved by a kernel of its own",
        "tvm_scatter/passes/fuse_moved_reads.py",
        "        if len(group) > 1 and says_sizes(group, arguments):",
        "        if False and says_sizes(group, arguments):",
        (f"{_FEW_ROWS}test_pages_are_moved_once",),
    ),
)

_TENSOR_CORES = "tests/test_tensor_core_products.py::"

TENSOR_CORES = (
    Mutant(
        "a transposition begins within a word",
        "tvm_scatter/schedules/gpu/transpose_kernel.py",
        "if not isinstance(each.first, int) or each.first % lanes:",
        "if not isinstance(each.first, int):",
        (_TRANSPOSED + "test_each_kind[cuda]",),
    ),
    Mutant(
        "parts of rows in shared memory keep their order",
        "tvm_scatter/schedules/gpu/turned_rows.py",
        "change = tirx.floormod(row, _ROWS) * PART",
        "change = tirx.const(0, row.ty.dtype)",
        (_TENSOR_CORES + "test_any_sizes_by_four_warps",),
    ),
    Mutant(
        "the product of a matrix with itself has one factor",
        "tvm_scatter/schedules/gpu/own_factors.py",
        "    if not copies:\n",
        "    if True:\n",
        (_TENSOR_CORES + "test_a_matrix_and_itself",),
    ),
)

_ATTENTION = "tests/test_attention.py::"

ATTENTION = (
    _kernel(
        "a greater score does not correct the sum of weights so far",
        "attention",
        "      total[line] *= less;\n",
        "",
        _ATTENTION + "test_forms[cuda-truth values]",
    ),
    _kernel(
        "a key behind the last one is seen",
        "attention",
        "all && key >= keys ? -infinity",
        "all && key > keys ? -infinity",
        _ATTENTION + "test_a_row_of_one_key_is_its_value[cuda]",
    ),
    Mutant(
        "the last key that a query sees is left out",
        "tvm_scatter/passes/analysis/masked_scores.py",
        "1 - rest if sign > 0 else rest",
        "-rest if sign > 0 else rest",
        (_ATTENTION + "test_unknown_sizes[cuda-True]",),
    ),
    Mutant(
        "heads that share keys read those of others",
        "tvm_scatter/passes/analysis/strided_views.py",
        "Axis(size, outer.stride, inner.size)",
        "Axis(size, outer.stride)",
        (_ATTENTION + "test_shared_keys[cuda-False]",),
    ),
    Mutant(
        "weights that others read are in no memory",
        "tvm_scatter/passes/analysis/attention.py",
        "if var in self._returned or readers - inside - {result.var}:",
        "if var in self._returned:",
        (_ATTENTION + "test_what_stays[weights that are read]",),
    ),
)

MUTANTS = (
    *(*KERNELS, *LAUNCHES, *CPU, *CHECKS, *READING, *PASSES, *SELECTION, *CACHE, *IMPORTERS),
    *FACTS,
    *ROW_SUMS,
    *REDUCTIONS,
    *LINES,
    *PRODUCTS,
    *SMALLEST,
    *SORTS,
    *MESSAGES_OF_ROWS,
    *OUTSIDE_LOOK,
    *LOOPS,
    *TENSOR_CORES,
    *ATTENTION,
)

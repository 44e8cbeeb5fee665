// Package data provides training data: samples, their order, the part of each rank, and batches.
//
// A [Dataset] has samples by index, a [Stream] only in order. A [Sampler] orders indices, a
// [BatchSampler] groups them, and a [Collate] makes a batch of samples. A [Loader] combines them.
// [NewLoader] and [NewStreamLoader] make one for a single process, [Loader.Prepare] splits it
// between the ranks of a world, and [SkipFirstBatches] resumes in the middle. A Loader is generic
// in its batches, not in its samples.
//
// A prepared loader reads one batch ahead. During its last batch it therefore reports that this is
// the last one ([Loader.EndOfDataloader]) and how many of its samples are not padding
// ([Loader.Remainder]). [TrimForMetrics] cuts the padding from gathered results. With
// Options.Workers goroutines read in the background; they end with the loop, however it ends.
//
// # Like the reference
//
// Sharding, order and flags are those of Accelerate 1.15 and torch 2.15, so that runs can be
// compared. These surprises are the same:
//
//   - [BatchShard] completes the tail with samples from the first batches. Without
//     EvenBatches ranks get different numbers of batches. With SplitBatches its Len is the
//     batch sampler's, even if a rank gets one batch fewer.
//   - [StreamShard]'s Len ignores SplitBatches and counts padding, which hides the
//     remainder of a sized stream: nothing is cut from its last batch.
//   - Loaders after [SkipFirstBatches] over a data set do not know their remainder (-1),
//     so padding stays in gathered results. Skipping all batches yields none, but Len is an
//     error. Skipping twice adds up over a data set; over a stream the last skip counts.
//   - A dispatching loader skips batches before it splits them, so over a data set skipping
//     one batch shifts every rank's batches. It fails with [ErrNothingToDispatch] where
//     others yield nothing, and fills the tail with at most Size samples.
//   - The epoch of a [SeedableRandomSampler] order advances only after a complete walk.
//
// # Samples
//
// Text comes from a JSONL, CSV or Parquet file ([OpenJSONL], [ReadJSONL]) of texts, prompts with
// completions, and conversations. The forms of TRL, ShareGPT and Alpaca are supported too.
// [Record.Tokenize] makes a [Sequence] of each and masks the labels of prompts with [IgnoreLabel].
// [Pack] joins sequences, and [PadTokens] collates them. A [Tokenizer] reads the tokenizer of a
// model folder. Images come from [ReadCIFAR10], through [Augmented] and [Normalize]. The package
// knows no models and no tensors.
package data

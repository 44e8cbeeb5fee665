// Package data feeds training: samples, the order they are taken in, the share of
// them each rank gets, and batches.
//
// A [Dataset] has samples by index, a [Stream] only in order. A [Sampler] orders
// indices, a [BatchSampler] groups them, a [Collate] makes a batch of samples. A
// [Loader] runs all that: [NewLoader] and [NewStreamLoader] make one for a single
// process, [Loader.Prepare] deals it to the ranks of a world, [SkipFirstBatches]
// resumes in the middle. Loaders are generic in the batch they yield, so the types of
// samples stay where they are made.
//
// A prepared loader reads one batch ahead, and so knows, while its last batch is in
// the caller's hands, that it is the last ([Loader.EndOfDataloader]) and how many of
// its samples are no padding ([Loader.Remainder]); [TrimForMetrics] cuts what was
// gathered. Options.Workers reads in the background; the goroutines end with the loop,
// however it ends.
//
// # Like the reference
//
// Sharding, order and flags are those of Accelerate 1.15 and torch 2.15, surprises
// included, because runs are compared with theirs:
//
//   - [BatchShard] completes the tail with samples from the first batches; without
//     EvenBatches ranks get different numbers of batches. With SplitBatches its Len is
//     the batch sampler's, also where a rank gets one batch fewer.
//   - [StreamShard]'s Len ignores SplitBatches and counts padding, which hides the
//     remainder of a sized stream: nothing is cut from its last batch.
//   - Loaders after [SkipFirstBatches] over a data set do not know their remainder (-1),
//     so padding stays in what is gathered. Skipping all batches yields none, but
//     Len is an error. Skipping twice adds up over a data set, over a stream the last
//     skip counts.
//   - A dispatching loader skips batches before they are dealt out, so over a data set
//     skipping one batch shifts what every rank gets. It fails with [ErrNothingToDispatch]
//     where others yield nothing, and fills the tail with at most Size samples.
//   - The epoch of a [SeedableRandom] order advances only when the order was used up.
//
// # Samples
//
// Text comes from a JSONL file ([OpenJSONL], [ReadJSONL]) of texts, prompts with
// completions, and conversations; [Record.Tokenize] makes a [Sequence] of each, with
// the labels of prompts masked by [Ignore]; [Pack] joins sequences and [PadTokens]
// collates them. [Tokenizer] reads what a model's folder has for that. Images come from
// [ReadCIFAR10], through [Augmented] and [Normalize]. The package knows nothing of
// models and tensors.
package data

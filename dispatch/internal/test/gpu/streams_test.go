package gpu_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
)

// TestOnlyLongPromptsStream: whether a block runs on a GPU depends on the length of the prompt, not on chunks, and
// generated tokens of blocks of the host never are.
func TestOnlyLongPromptsStream(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	o := withTwoGPUs(dispatch.Options{Threads: 1, StreamPrompts: 18})
	m, err := dispatch.New(skeleton, checkpoint, stationMaps(skeleton)["disk between"], o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids, prompt := dispatchtest.LawIDs() // 18 tokens
	dispatchtest.ForcedLogits(t, m, ids[:prompt-1], prompt-1, prompt-1)
	if n := streamed(m); n != 0 {
		t.Errorf("a prompt of %d tokens streamed %d bytes", prompt-1, n)
	}
	dispatchtest.ForcedLogits(t, m, ids[:prompt], prompt, 3)
	after := streamed(m)
	var block int64
	for _, p := range skeleton.Root.Find("model.layers.0").AllParams() {
		block += p.Bytes()
	}
	if after != 6*block { // six chunks of one block
		t.Errorf("a prompt of %d tokens in 6 chunks streamed %d bytes, want %d", prompt, after, 6*block)
	}
	dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
	if n := streamed(m); n != after+block {
		t.Errorf("a prompt and generated tokens streamed %d bytes, want %d", n-after, block)
	}
}

// TestStreamedAutoDependsOnTheMapAlone: with automatic precision, GPUs may have other bits than the CPU. The
// answer of a map is the same for chunks and batches with shorter prompts, all the same.
func TestStreamedAutoDependsOnTheMapAlone(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	ids, prompt := dispatchtest.LawIDs()
	m, err := dispatch.New(skeleton, checkpoint, stationMaps(skeleton)["disk between"], withTwoGPUs(dispatch.Options{Threads: 1, StreamPrompts: prompt}))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	want := dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
	dispatchtest.SameLogits(t, "in chunks", dispatchtest.ForcedLogits(t, m, ids, prompt, 5), want)
	dispatchtest.SameLogits(t, "in a batch of 3", dispatchtest.LogitsInPieces(t, m, 1, 3, ids, prompt, 4, 2), want)
}

// TestARowOfAPromptAndGeneratedTokensIsDivided: all results of such a row are those of its parts, hidden states
// and their sums too.
func TestARowOfAPromptAndGeneratedTokensIsDivided(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	ids, prompt := dispatchtest.LawIDs()
	devices := stationMaps(skeleton)["disk between"]
	var logits, hidden [2][][]float32
	for i, from := range []int{0, prompt} {
		m, err := dispatch.New(skeleton, checkpoint, devices, withTwoGPUs(dispatch.Options{Threads: 1, Precision: dispatch.PrecisionHigh, StreamPrompts: from}))
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []dispatch.HiddenMode{dispatch.HiddenNone, dispatch.HiddenFirst, dispatch.HiddenLast, dispatch.HiddenSum} {
			for _, rows := range []dispatch.LogitsMode{dispatch.LogitsNone, dispatch.LogitsLast, dispatch.LogitsAll} {
				s, short := m.NewSequence(), m.NewSequence()
				got, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{
					{Sequence: short, Tokens: ids[:4], PromptLen: 4, Logits: rows, Hidden: mode},
					{Sequence: s, Tokens: ids, PromptLen: prompt, Logits: rows, Hidden: mode}}})
				if err != nil {
					t.Fatal(err)
				}
				for row := range 2 {
					logits[i] = append(logits[i], dispatchtest.Rows(got, row)...)
					hidden[i] = append(hidden[i], slices.Clone(got.Hidden(row)))
				}
				s.Free()
				short.Free()
			}
		}
		m.Close()
	}
	dispatchtest.SameLogits(t, "logits", logits[1], logits[0])
	dispatchtest.SameLogits(t, "hidden states", hidden[1], hidden[0])
}

// TestWeightsThatCannotBeReadAreNoFaultOfTheGPU: the error of a pass whose weights stream to a GPU names the file
// or the module, as on the host, and later passes run once the weights can be read.
func TestWeightsThatCannotBeReadAreNoFaultOfTheGPU(t *testing.T) {
	ids, prompt := dispatchtest.LawIDs()
	for name, dir := range map[string]string{"dense": dispatchtest.LawFolder(t), "experts": dispatchtest.MixtureFolder(t, 77)} {
		skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
		o := withTwoGPUs(dispatch.Options{Threads: 1, StreamPrompts: 1, MaxBatchTokens: 32, Ledger: new(dispatch.Ledger)})
		var failing atomic.Bool
		dispatchtest.Intercept(o.Ledger, func(read func() error) error {
			if failing.Load() {
				return errors.New("a sector cannot be read")
			}
			return read()
		})
		m, err := dispatch.New(skeleton, checkpoint, stationMaps(skeleton)["disk between"], o)
		if err != nil {
			t.Fatal(err)
		}
		want := dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
		failing.Store(true)
		s := m.NewSequence()
		_, err = m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: ids[:prompt], Logits: dispatch.LogitsLast}}})
		var device *dispatch.DeviceError
		var weights *dispatch.WeightError
		if errors.As(err, &device) || !errors.As(err, &weights) || s.Len() != 0 {
			t.Errorf("%s: error %v, want one of the weights", name, err)
		}
		s.Free()
		failing.Store(false)
		dispatchtest.SameLogits(t, name+", later", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
		m.Close()
	}
}

// TestEachAttentionOfAStreamedBlockKeepsItsKeys: the two attentions of a block of LongCat Flash shared one memory of the
// GPU that the block streamed to, so that the host had the keys of the second for both.
func TestEachAttentionOfAStreamedBlockKeepsItsKeys(t *testing.T) {
	stationsKeepBits(t, golden.OwnModel(t, "family-longcat-flash-2"), withTwoGPUs)
}

// TestAFileCutShortWhileItStreams: the error names the file.
func TestAFileCutShortWhileItStreams(t *testing.T) {
	dir := dispatchtest.LawFolder(t)
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	ids, prompt := dispatchtest.LawIDs()
	devices := devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}, devicemap.Entry{Path: "model.layers.0", Device: "0"})
	m, err := dispatch.New(skeleton, checkpoint, devices, withTwoGPUs(dispatch.Options{Threads: 1, StreamPrompts: 1}))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	dispatchtest.ForcedLogits(t, m, ids[:prompt], prompt, prompt)
	if err := os.Truncate(filepath.Join(dir, "model.safetensors"), 4096); err != nil {
		t.Fatal(err)
	}
	s := m.NewSequence()
	defer s.Free()
	_, err = m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: ids[:prompt], Logits: dispatch.LogitsLast}}})
	var weights *dispatch.WeightError
	if !errors.As(err, &weights) || weights.File == "" {
		t.Errorf("error %v, want one that names the file", err)
	}
}

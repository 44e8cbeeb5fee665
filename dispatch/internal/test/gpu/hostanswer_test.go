package gpu_test

import (
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A hostAnswer is a golden model with the logits that it has on the CPU alone, with high precision. Law 4: maps with GPUs
// change no bit of them.
type hostAnswer struct {
	skeleton   *meta.Model
	checkpoint *loader.Checkpoint
	o          dispatch.Options // for the CPU alone
	ids        []int32
	prompt     int // of ids
	logits     [][]float32
}

// answerOfHost computes the logits of a golden model, whose weights are converted to a format.
func answerOfHost(t *testing.T, g *golden.Model, format meta.QuantFormat) *hostAnswer {
	t.Helper()
	a := &hostAnswer{ids: stationIDs(g)}
	a.prompt = max(1, len(a.ids)-3)
	a.skeleton, a.checkpoint = dispatchtest.OpenCheckpoint(t, g.Dir())
	a.o = dispatch.Options{Threads: 1, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh, Context: 128, KVTokens: 12 * 128, Quantize: format}
	m, err := dispatch.New(a.skeleton, a.checkpoint, devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}), a.o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	a.logits = dispatchtest.ForcedLogits(t, m, a.ids, a.prompt, a.prompt)
	return a
}

// stationIDs are at most 24 tokens of the model's first prompt and its greedy continuation.
func stationIDs(g *golden.Model) []int32 {
	p := g.Prompts[0]
	ids := slices.Concat(p.IDs, p.Greedy)
	return ids[:min(len(ids), 24)]
}

// isKept compares the logits of the model over a map with those of the CPU, for o and what is tried: whole, in chunks and
// in a batch. Weights stream to GPUs exactly if the model says that they do. It returns how many bytes streamed, and the bytes of
// weights in the host's memory.
func (a *hostAnswer) isKept(t *testing.T, what string, devices devicemap.Map, o dispatch.Options) (streams, onHost int64) {
	t.Helper()
	m, err := dispatch.New(a.skeleton, a.checkpoint, devices, o)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer m.Close()
	dispatchtest.SameLogits(t, what, dispatchtest.ForcedLogits(t, m, a.ids, a.prompt, a.prompt), a.logits)
	dispatchtest.SameLogits(t, what+", in chunks", dispatchtest.ForcedLogits(t, m, a.ids, a.prompt, 5), a.logits)
	dispatchtest.SameLogits(t, what+", in a batch of 3", dispatchtest.LogitsInPieces(t, m, 1, 3, a.ids, a.prompt, 4, 2), a.logits)
	streams = streamed(m)
	if (streams > 0) != dispatchtest.StreamsPrompts(m) {
		t.Errorf("%s: %d bytes were streamed", what, streams)
	}
	return streams, m.Status().TierBytes[devicemap.CPU]
}

// streamed is the bytes of weights that GPUs took of the host.
func streamed(m *dispatch.Model) (n int64) {
	for _, u := range m.DeviceUse() {
		n += u.StreamedBytes
	}
	return n
}

package dispatch_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// onDisk opens a model whose weights are all streamed, in as little memory as possible or with
// staging for more.
func onDisk(t *testing.T, dir string, o dispatch.Options) *dispatch.Model {
	t.Helper()
	o.DeviceMap = devicemap.Policy{Kind: devicemap.Manual, Pins: devicemap.NewMap(devicemap.Entry{Device: devicemap.Disk})}
	return cpuModel(t, dir, o)
}

// smallBand is the size of bands in which the small matrices of these tests stream, in bytes.
const smallBand = 4 << 10

// TestTheOrderOfArrivalChangesNoBit streams models from a disk that answers in random order: the
// logits are those of weights in memory, whatever arrives first, in however many slots, whole or in bands.
func TestTheOrderOfArrivalChangesNoBit(t *testing.T) {
	ids, prompt := lawIDs()
	for name, s := range map[string]shape{
		"dense":   {hidden: 96, inner: 130, heads: 4, kv: 2, dim: 20, vocab: 230, layers: 3, dtype: meta.BFloat16, shift: 3},
		"experts": {hidden: 96, inner: 77, heads: 4, kv: 2, dim: 20, vocab: 230, layers: 3, dtype: meta.BFloat16, shift: 3, experts: true, choose: 4},
	} {
		t.Run(name, func(t *testing.T) {
			dir := s.folder(t, rand.New(rand.NewPCG(5, 5)))
			o := dispatch.Options{Threads: 2}
			want := forced(t, cpuModel(t, dir, o), ids, prompt, 7)
			for seed := range uint64(4) {
				var mu sync.Mutex
				r := rand.New(rand.NewPCG(seed, 2))
				o.Ledger = new(dispatch.Ledger)
				dispatchtest.Intercept(o.Ledger, func(read func() error) error {
					mu.Lock()
					wait := time.Duration(r.IntN(200)) * time.Microsecond
					mu.Unlock()
					time.Sleep(wait)
					return read()
				})
				o.StagingBytes = int64(seed) << 17
				for _, bands := range []int64{0, smallBand} {
					m := onDisk(t, dir, dispatchtest.InBands(o, bands))
					sameLogits(t, fmt.Sprintf("order %d, bands of %d", seed, bands), forced(t, m, ids, prompt, 7), want)
					if reads := m.Status().TierReadBytes; reads == 0 {
						t.Error("nothing was streamed")
					}
				}
			}
		})
	}
}

// TestADiskThatFailsNowAndThen: a read that fails is repeated. If that fails too the pass fails, and
// so does no later one. No logits are ever wrong.
func TestADiskThatFailsNowAndThen(t *testing.T) {
	ids, prompt := lawIDs()
	dir := shape{hidden: 96, inner: 77, heads: 4, kv: 2, dim: 20, vocab: 230, layers: 2, dtype: meta.BFloat16, experts: true, choose: 3}.folder(t, rand.New(rand.NewPCG(6, 6)))
	want := forced(t, cpuModel(t, dir, dispatch.Options{Threads: 2}), ids, prompt, 7)
	broken := errors.New("the disk failed")
	for _, rate := range []int{1000, 20, 2} {
		var mu sync.Mutex
		r := rand.New(rand.NewPCG(uint64(rate), 3))
		o := dispatch.Options{Threads: 2, Ledger: new(dispatch.Ledger)}
		failed, whole := 0, 0
		dispatchtest.Intercept(o.Ledger, func(read func() error) error {
			mu.Lock()
			fails := r.IntN(rate) == 0
			mu.Unlock()
			if fails {
				return broken
			}
			return read()
		})
		if rate != 20 {
			o = dispatchtest.InBands(o, smallBand)
		}
		m := onDisk(t, dir, o)
		s := m.NewSequence()
		for range 400 {
			b := dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: ids[s.Len():][:1], PromptLen: prompt, Logits: dispatch.LogitsAll}}}
			before := s.Len()
			got, err := m.Forward(t.Context(), &b)
			if err != nil {
				if failed++; !errors.Is(err, broken) || s.Len() != before {
					t.Fatalf("1 of %d reads fails: %v, %d tokens of %d", rate, err, s.Len(), before)
				}
				continue
			}
			whole++
			sameLogits(t, fmt.Sprintf("1 of %d reads fails: token %d", rate, before), split(got, 0), want[before:before+1])
			if s.Len() == len(ids) {
				s.Free()
				s = m.NewSequence()
			}
		}
		s.Free()
		if whole == 0 && rate > 2 || failed == 0 && rate <= 2 {
			t.Errorf("1 of %d reads fails: %d passes fail and %d do not", rate, failed, whole)
		}
	}
}

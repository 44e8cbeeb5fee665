package disk_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// TestTheOrderOfArrivalChangesNoBit streams models from a disk that answers in random order: the
// logits are those of weights in memory, whatever arrives first, in however many slots, whole or in bands.
func TestTheOrderOfArrivalChangesNoBit(t *testing.T) {
	ids, prompt := dispatchtest.LawIDs()
	for name, s := range map[string]dispatchtest.Shape{
		"dense":   {Hidden: 96, Inner: 130, Heads: 4, KV: 2, Dim: 20, Vocab: 230, Layers: 3, DType: meta.BFloat16, Shift: 3},
		"experts": {Hidden: 96, Inner: 77, Heads: 4, KV: 2, Dim: 20, Vocab: 230, Layers: 3, DType: meta.BFloat16, Shift: 3, Experts: true, Choose: 4},
	} {
		t.Run(name, func(t *testing.T) {
			dir := s.Folder(t, rand.New(rand.NewPCG(5, 5)))
			o := dispatch.Options{Threads: 2}
			want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, o), ids, prompt, 7)
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
				for _, bands := range []int64{0, dispatchtest.SmallBand} {
					m := dispatchtest.OnDisk(t, dir, dispatchtest.InBands(o, bands))
					dispatchtest.SameLogits(t, fmt.Sprintf("order %d, bands of %d", seed, bands), dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
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
	ids, prompt := dispatchtest.LawIDs()
	dir := dispatchtest.Shape{Hidden: 96, Inner: 77, Heads: 4, KV: 2, Dim: 20, Vocab: 230, Layers: 2, DType: meta.BFloat16, Experts: true, Choose: 3}.Folder(t, rand.New(rand.NewPCG(6, 6)))
	want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 2}), ids, prompt, 7)
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
			o = dispatchtest.InBands(o, dispatchtest.SmallBand)
		}
		m := dispatchtest.OnDisk(t, dir, o)
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
			dispatchtest.SameLogits(t, fmt.Sprintf("1 of %d reads fails: token %d", rate, before), dispatchtest.Rows(got, 0), want[before:before+1])
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

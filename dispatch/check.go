package dispatch

import (
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/meta"
)

var errNoAttention = errors.New("dispatch: forward: the tree has no attention: use Model.Apply")

// check returns an error that names the first field of o with an invalid value.
func (o *Options) check() error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"Threads", int64(o.Threads)}, {"MaxBatchTokens", int64(o.MaxBatchTokens)}, {"MaxSequences", int64(o.MaxSequences)},
		{"Context", int64(o.Context)}, {"KVTokens", int64(o.KVTokens)}, {"KVBytes", o.KVBytes}, {"StagingBytes", o.StagingBytes},
		{"MaxModelLen", int64(o.MaxModelLen)}, {"RequestBytes", o.RequestBytes}, {"AdapterMemory", o.AdapterMemory},
	} {
		if f.value < 0 {
			return fmt.Errorf("dispatch: Options.%s: got %d, want 0 or more", f.name, f.value)
		}
	}
	switch {
	case o.StreamPrompts < StreamChosen:
		return fmt.Errorf("dispatch: Options.StreamPrompts: got %d, want a number of tokens or StreamChosen", o.StreamPrompts)
	case o.Precision > PrecisionHigh:
		return fmt.Errorf("dispatch: Options.Precision: got %d, want PrecisionAuto or PrecisionHigh", o.Precision)
	case o.Compress > CompressExact:
		return fmt.Errorf("dispatch: Options.Compress: got %d, want CompressNone, CompressAuto or CompressExact", o.Compress)
	case o.GPUKernels > GPUKernelsFast:
		return fmt.Errorf("dispatch: Options.GPUKernels: got %d, want GPUKernelsAuto, GPUKernelsExact or GPUKernelsFast", o.GPUKernels)
	case o.Quantize != meta.QuantNone && !o.Quantize.Row().Convert:
		return fmt.Errorf("dispatch: Options.Quantize: got %v (%d), want QuantNone, QuantQ8 or QuantQ4", o.Quantize, o.Quantize)
	case o.KVDType != meta.NoDType && !kvcache.Holds(o.KVDType):
		return fmt.Errorf("dispatch: Options.KVDType: got %v, want float32, bfloat16, float16 or int8", o.KVDType)
	}
	return nil
}

// check returns an error if m cannot compute b. In a batch that it accepts, each row has a
// sequence of its own that belongs to m.
func (m *Model) check(b *Batch) error {
	if b == nil {
		return errors.New("dispatch: forward: got no batch")
	}
	m.batches++
	for i := range b.Rows {
		if err := m.checkRow(&b.Rows[i]); err != nil {
			return fmt.Errorf("dispatch: row %d: %w", i, err)
		}
		b.Rows[i].Sequence.batch = m.batches
	}
	return nil
}

func (m *Model) checkRow(r *BatchRow) error {
	switch s := r.Sequence; {
	case s == nil:
		return errors.New("got no sequence, want one of Model.NewSequence")
	case s.model != m:
		return errors.New("got a sequence of another model")
	case s.batch == m.batches:
		return errors.New("got the sequence of an earlier row, want one row for each sequence")
	case len(r.Tokens) == 0:
		return errors.New("got no tokens, want at least one")
	case r.PromptLen < 0:
		return fmt.Errorf("got a prompt of %d tokens, want 0 or more", r.PromptLen)
	case r.Logits > LogitsAll:
		return fmt.Errorf("got the logits mode %d, want LogitsNone, LogitsLast or LogitsAll", r.Logits)
	case r.Hidden > HiddenSum:
		return fmt.Errorf("got the hidden mode %d, want one of HiddenNone to HiddenSum", r.Hidden)
	}
	return nil
}

// check returns an error if s cannot take pages.
func (s *Sequence) check() error {
	switch {
	case s.model == nil:
		return errors.New("dispatch: got a sequence without a model, want one of Model.NewSequence")
	case s.model.closed.Load():
		return ErrClosed
	case s.model.cache == nil:
		return errNoAttention
	}
	return nil
}

package placement

import (
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/lora"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// EachAdapter opens the adapters of o one after another, checks that they fit the model, and
// calls do for each.
func (o *Settings) EachAdapter(skeleton *meta.Model, do func(a Adapter, from *lora.Adapter) error) error {
	seen := map[string]bool{}
	for _, a := range o.Adapters {
		if a.Name == "" || seen[a.Name] {
			return fmt.Errorf("dispatch: adapter %q of %s: the name is empty or taken: use another one", a.Name, a.Dir)
		}
		seen[a.Name] = true
		from, err := lora.Open(a.Dir, skeleton.Root)
		if err == nil {
			err = errors.Join(do(a, from), from.Close())
		}
		if err != nil {
			return fmt.Errorf("dispatch: adapter %q: %w", a.Name, err)
		}
	}
	return nil
}

// adapterBytes returns the memory that the adapters of o take. host counts matrices, activations
// and the buffers of a KV store; gpu counts what they take on each GPU.
func (o *Settings) adapterBytes(skeleton *meta.Model, program *nn.Program) (host, gpu int64, err error) {
	var matrices, scratch int64
	err = o.EachAdapter(skeleton, func(_ Adapter, from *lora.Adapter) error {
		bound, err := program.NewAdapter(nil, from)
		if err != nil {
			return err
		}
		matrices += from.Bytes()
		scratch = max(scratch, bound.AdapterBytes())
		return nil
	})
	gpu = matrices + scratch
	if o.KVStored {
		whole := o.withDefaults(skeleton) // else pages have no dtype, and so no size
		scratch += whole.KVConfig(program).BackingBytes()
	}
	return matrices + scratch + o.AdapterMemory, gpu + o.AdapterMemory, err
}

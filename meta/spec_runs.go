package meta

import "slices"

// A RunSpec is a run of hidden states through some blocks, one after another, in a model that runs
// blocks several times for a token. A block has the same parameters in each of its runs, and each
// run has its own layers of the KV cache and states of its own.
type RunSpec struct {
	Blocks   string // ModuleList of Blocks
	From, To int    // the run has block From and those after it, up to block To-1
	// Offset is added to the indices of the blocks' layers of the KV cache. It is 0 in the first
	// run of a block. States is added to the indices of their states.
	Offset, States int
	// Detached means that training propagates no gradient through the run's hidden states, as
	// with torch.no_grad.
	Detached bool
	Entry    *RunEntrySpec // nil if the run begins with the result of the one before it
}

// RunEntrySpec changes the hidden states x and the kept states k, which follow x in each row
// ([CausalLMSpec].Carry), before a run. With n = Norm(x):
//
//	x = n + k;  k = n if Keeps is set, and otherwise stays
type RunEntrySpec struct {
	Norm  string // dotted path of the root; "" for none
	First bool   // k is n before the sum: there are no kept states yet
	Keeps bool
}

// ChannelScaleSpec multiplies channels by numbers that Param, [channels], determines: with s =
// Factor·Param[channel], by s, s² or |s| (nGPT's scales).
type ChannelScaleSpec struct {
	Param  string // of the module that the spec belongs to
	Factor float32
	Form   ScaleForm
}

// ScaleForm is the form of the factors of [ChannelScaleSpec].
type ScaleForm uint8

// The forms of factors.
const (
	ScalePlain    ScaleForm = iota // s
	ScaleSquare                    // s²
	ScaleAbsolute                  // |s|
)

// Lists returns the paths of the ModuleLists of the model's blocks.
func (s *CausalLMSpec) Lists() []string {
	if len(s.Runs) == 0 {
		return []string{s.Layers}
	}
	var lists []string
	for _, r := range s.Runs {
		if !slices.Contains(lists, r.Blocks) {
			lists = append(lists, r.Blocks)
		}
	}
	return lists
}

// Uses returns how often a token passes each module that it passes more than once, by path.
// It is nil for models that run each block once.
func (s *CausalLMSpec) Uses(root *Module) map[string]int {
	var uses map[string]int
	for _, r := range s.Runs {
		list := root.Find(r.Blocks)
		if list == nil {
			continue
		}
		for i := max(r.From, 0); i < min(r.To, len(list.Children)); i++ {
			if uses == nil {
				uses = map[string]int{}
			}
			uses[Join(r.Blocks, list.Children[i].Name)]++
		}
	}
	return uses
}

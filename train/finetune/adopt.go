package finetune

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// optimizers lists the values of --optimizer.
var optimizers = []string{"adamw", "adam", "sgd", "adagrad", "rmsprop", "adafactor", "muon", "adamw8bit"}

// foreignOptimizers maps names of transformers' optim option to optimizers of this package that
// take the same steps.
var foreignOptimizers = map[string]string{
	"adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_torch_xla": "adamw", "adamw_hf": "adamw",
	"paged_adamw": "adamw", "paged_adamw_32bit": "adamw",
	"adamw_8bit": "adamw8bit", "adamw_bnb_8bit": "adamw8bit", "paged_adamw_8bit": "adamw8bit",
}

// adopt replaces transformers' names and values of options by those of this package.
func (c *job) adopt() error {
	if name, ok := foreignOptimizers[c.Optimizer]; ok {
		c.Optimizer = name
	}
	if !slices.Contains(optimizers, c.Optimizer) {
		return misusef("got --optimizer %q, want one of %s, or of transformers' %s", c.Optimizer, strings.Join(optimizers, ", "),
			strings.Join(slices.Sorted(maps.Keys(foreignOptimizers)), ", "))
	}
	switch {
	case c.WarmupSteps > 0 && c.WarmupRatio > 0: // see checkEffect
	case c.WarmupSteps > 0 && c.WarmupSteps < 1:
		c.WarmupSteps, c.WarmupRatio = 0, c.WarmupSteps
	default:
		c.WarmupSteps = math.Trunc(c.WarmupSteps)
	}
	return nil
}

// sayPaging logs where an optimizer's state is, if the optimizer's name promises to page it between
// memories.
func (c *job) sayPaging(optimizer string) {
	if strings.HasPrefix(optimizer, "paged_") {
		c.log.Info("the optimizer's state stays in memory: --plugin gemini moves that of adamw between memory and disk", "optimizer", optimizer, "as", c.Optimizer)
	}
}

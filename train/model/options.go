package model

import (
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/meta"
)

// Option configures [Load].
type Option func(*options)

type options struct {
	freeze   func(path string) bool
	place    placement
	quantize meta.QuantFormat
	// logitRows is that of LogitRows; 0 means no bound.
	logitRows int
	// activations configures where Losses keeps states between units.
	activations residency.ChangingOptions
	// offload configures where trained parameters are; nil means in memory.
	offload *residency.ChangingOptions
}

// Freeze leaves parameters in the checkpoint if frozen returns true for their path. Passes use them
// in place and in their dtype, quantised ones too. They take only the file's pages, get no gradient,
// and are not among [Model.Parameters]. Keep the checkpoint open as long as the model is used.
func Freeze(frozen func(path string) bool) Option {
	return func(o *options) { o.freeze = frozen }
}

// Quantize converts the frozen matrices of linear maps and experts before their first use: to
// [meta.QuantQ8] or [meta.QuantQ4], as serve's --quantize does, or all but the head to
// [meta.QuantBnbNF4] with blocks of 64, as bitsandbytes does. They are then in memory, in that format.
// Passes dequantise them to float32. It excludes [MaxMemory] and [DeviceMap].
func Quantize(format meta.QuantFormat) Option { return func(o *options) { o.quantize = format } }

// LogitRows bounds the rows of logits that a loss holds at a time, in addition to its own bound of some millions of
// logits; fewer than 32 are 32. Each group of rows repacks the head's weights, so small groups take less memory and more
// time. They change no bit: a head that trains or is quantised, whose products depend on the groups, ignores the bound.
func LogitRows(n int) Option { return func(o *options) { o.logitRows = max(n, leastLogitRows) } }

// PackOnce has the batches of [Model.Losses] share the packed form of frozen bfloat16 weights that products make, while they
// go through a unit. Its memory is part of that of [MaxMemory], as far as it has room for it, and at most twice the weights
// of a block. It changes no bit, and has no effect on processors without products of bfloat16.
func PackOnce() Option { return func(o *options) { o.place.packs = true } }

// leastLogitRows is twice the least number of rows from which the products of a head depend on each row alone.
const leastLogitRows = 32

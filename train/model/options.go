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
	// logitRows is the value of LogitRows; 0 means no limit.
	logitRows int
	// activations configures where Losses keeps states between units.
	activations residency.ChangingOptions
	// headless is set by WithoutHead.
	headless bool
	// offload configures where trained parameters are. nil means in memory.
	offload *residency.ChangingOptions
}

// Freeze keeps parameters in the checkpoint if frozen returns true for their path. Passes use them
// in place and in their dtype, including quantised ones. They only use the file's pages in the page
// cache, get no gradient, and are not among [Model.Parameters]. Keep the checkpoint open while the
// model is in use.
func Freeze(frozen func(path string) bool) Option {
	return func(o *options) { o.freeze = frozen }
}

// Quantize converts the frozen matrices of linear maps and experts before their first use: to
// [meta.QuantQ8] or [meta.QuantQ4], like serve's --quantize, or all except the head to
// [meta.QuantBnbNF4] with blocks of 64, like bitsandbytes. The converted matrices are in memory.
// Passes dequantise them to float32. Quantize cannot be combined with [MaxMemory] and [DeviceMap].
func Quantize(format meta.QuantFormat) Option { return func(o *options) { o.quantize = format } }

// LogitRows limits the rows of logits that a loss holds at a time, in addition to its own limit of
// some millions of logits. Values below 32 mean 32. Each chunk of rows repacks the head's weights,
// so small chunks take less memory and more time. Results keep their bits: a head that trains or is
// quantised, whose products depend on the chunks, ignores the limit.
func LogitRows(n int) Option { return func(o *options) { o.logitRows = max(n, leastLogitRows) } }

// PackOnce lets the batches of [Model.Losses] share the packed form of frozen bfloat16 weights
// while they pass through a unit. The packed weights use memory within the limit of [MaxMemory] if
// there is room, at most twice the weights of a block. PackOnce changes no bit. It has no effect on
// processors without bfloat16 products.
func PackOnce() Option { return func(o *options) { o.place.packs = true } }

// WithoutHead is for passes that compute no logits, such as [Model.HiddenStates] for a head of your
// own: a frozen head takes no memory and is never read. Loss, Losses and Logits return an error.
func WithoutHead() Option { return func(o *options) { o.headless = true } }

// leastLogitRows is twice the minimum number of rows for which a head's products depend on each row
// alone.
const leastLogitRows = 32

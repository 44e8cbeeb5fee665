package backend

import "github.com/heftai/heft/internal/tensor"

// Scans is implemented by a Backend that supports the recurrence of Mamba (version 1). It is like
// the operations of [Recurrent].
type Scans interface {
	// SelectiveScan is the recurrence of Mamba. Each channel has a state of StateDim numbers:
	//
	//	S = exp(-exp(aLog)·Δ)·S + Δ·x·B;  dst = S·C + d·x
	//
	// with Δ = softplus(dt). dst, x and dt are [n, Channels], B and C [n, StateDim], aLog [Channels·StateDim] and d [Channels].
	// The state is S, [Channels, StateDim].
	SelectiveScan(dst tensor.Tensor, in SelectiveInputs, s States, a SelectiveArgs)
}

// ScanGradients has the backward operation of [Scans.SelectiveScan]. It is like those of
// [RecurrentGradients].
type ScanGradients interface {
	Scans
	// SelectiveScanGrad is the backward operation of SelectiveScan; d holds the gradients of in.
	SelectiveScanGrad(d SelectiveInputs, dy tensor.Tensor, in SelectiveInputs, s States, a SelectiveArgs)
}

// SelectiveInputs holds the operands of [Scans.SelectiveScan].
type SelectiveInputs struct {
	X, B, C, DT tensor.Tensor
	ALog, D     tensor.Tensor
}

// SelectiveArgs holds the parameters of a layer.
type SelectiveArgs struct {
	Channels, StateDim int
	Rates              bool // ALog has -exp(aLog)
}

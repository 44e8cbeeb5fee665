package backend

import "github.com/heftai/heft/internal/tensor"

// Scans is implemented by a Backend that runs the recurrence of the first Mamba, as [Recurrent] does others.
type Scans interface {
	// SelectiveScan is the recurrence of Mamba. Each channel has a state of StateDim numbers:
	//
	//	S = exp(-exp(aLog)·Δ)·S + Δ·x·B;  dst = S·C + d·x
	//
	// with Δ = softplus(dt). dst, x and dt are [n, Channels], B and C [n, StateDim], aLog [Channels·StateDim] and d [Channels].
	// The state is S, [Channels, StateDim].
	SelectiveScan(dst tensor.Tensor, in SelectiveInputs, s States, a SelectiveArgs)
}

// ScanGradients has the reverse of [Scans.SelectiveScan], as [RecurrentGradients] has those of [Recurrent].
type ScanGradients interface {
	Scans
	// SelectiveScanGrad is the reverse of SelectiveScan; d are the gradients of in.
	SelectiveScanGrad(d SelectiveInputs, dy tensor.Tensor, in SelectiveInputs, s States, a SelectiveArgs)
}

// SelectiveInputs are the operands of [Scans.SelectiveScan].
type SelectiveInputs struct {
	X, B, C, DT tensor.Tensor
	ALog, D     tensor.Tensor
}

// SelectiveArgs are the parameters of a layer.
type SelectiveArgs struct {
	Channels, StateDim int
	Rates              bool // ALog has -exp(aLog)
}

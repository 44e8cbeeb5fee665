package train

import (
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// Params returns the trainable parameters of modules for an optimizer, each once.
func Params(modules ...Module) []optim.Param {
	var all []optim.Param
	seen := map[*tensor.Parameter]bool{}
	for _, m := range modules {
		for _, p := range m.Parameters() {
			if p != nil && p.Trainable && !seen[p] {
				seen[p] = true
				all = append(all, p)
			}
		}
	}
	return all
}

var (
	_ optim.Stored     = (*tensor.Parameter)(nil)
	_ optim.StoredGrad = (*tensor.Parameter)(nil)
)

// ClipGradNorm scales the gradients of params together so that their p-norm is at most limit, and
// returns the norm before scaling. It first unscales gradients that a Scaler scaled. Call it only
// if [Accelerator.SyncGradients] is true: before, gradients are incomplete.
func (a *Accelerator) ClipGradNorm(params []optim.Param, limit, p float64) (float64, error) {
	if err := a.UnscaleGradients(); err != nil {
		return 0, err
	}
	return a.rank.ClipNorm(params, limit, p)
}

// ClipGradValue limits every gradient of params to ±limit, after unscaling.
func (a *Accelerator) ClipGradValue(params []optim.Param, limit float64) error {
	if err := a.UnscaleGradients(); err != nil {
		return err
	}
	return a.rank.ClipValue(params, limit)
}

// UnscaleGradients divides the gradients of all prepared optimizers by Config.Scaler's scale.
// Calling it twice for one step is an error.
func (a *Accelerator) UnscaleGradients() error { return a.rank.Unscale() }

// OptimizerStepWasSkipped reports whether any prepared optimizer skipped its last step because of
// an overflow.
func (a *Accelerator) OptimizerStepWasSkipped() bool {
	for _, o := range a.rank.Optimizers {
		if o.StepWasSkipped() {
			return true
		}
	}
	return false
}

package train

import (
	"fmt"

	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// mixedPrecision returns the precision that Config.MixedPrecision stands for. On a CPU "fp16" means
// float32, as in Accelerate, unless it is corrected.
func (c *Config) mixedPrecision() (tensor.Precision, error) {
	switch c.MixedPrecision {
	case "", "no":
		return tensor.Float32, nil
	case "bf16":
		return tensor.BFloat16, nil
	case "fp16":
		if c.Corrections.Float16OnCPU {
			return tensor.Float16, nil
		}
		return tensor.Float32, nil
	}
	return tensor.Float32, fmt.Errorf("train: mixed precision: got %q, want no, bf16 or fp16", c.MixedPrecision)
}

// prepareScaler makes the scaler that float16 needs, if there is none.
func (a *Accelerator) prepareScaler() error {
	var err error
	if a.precision == tensor.Float16 && a.cfg.Scaler == nil {
		a.cfg.Scaler, err = optim.NewScaler(optim.ScalerOptions{})
	}
	return err
}

// MixedPrecision returns the configured mode: no, bf16 or fp16. [Accelerator.Precision] is the
// precision in use.
func (a *Accelerator) MixedPrecision() string {
	if a.cfg.MixedPrecision == "" {
		return "no"
	}
	return a.cfg.MixedPrecision
}

// Precision returns the precision of products under [Accelerator.Autocast].
func (a *Accelerator) Precision() tensor.Precision { return a.precision }

// Scaler returns Config.Scaler, or the default scaler for float16, or nil.
func (a *Accelerator) Scaler() *optim.Scaler { return a.cfg.Scaler }

// NewTape makes a tape whose products are in [Accelerator.Precision], unless o.Autocast sets
// another precision.
func (a *Accelerator) NewTape(o tensor.Options) *tensor.Tape {
	if o.Autocast == tensor.Float32 {
		o.Autocast = a.precision
	}
	return tensor.NewTape(o)
}

// Autocast runs f with tp's products in [Accelerator.Precision]. Use it for tapes that NewTape did
// not make. tensor.Tape.Autocast with tensor.Float32 turns it off temporarily.
func (a *Accelerator) Autocast(tp *tensor.Tape, f func() error) error {
	var err error
	tp.Autocast(a.precision, func() { err = f() })
	return err
}

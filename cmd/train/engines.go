package main

import (
	"fmt"
	"slices"
)

// supported rejects configurations of engines and machines that Heft cannot train with. The error
// names the nearest plugin.
func (c config) supported() error {
	allowed := []string(nil)
	switch d := c.text("distributed_type"); d {
	case "", "NO", "MULTI_CPU":
	case "DEEPSPEED":
		allowed = append(allowed, "deepspeed_config")
		if err := c.zeroSupported(); err != nil {
			return err
		}
	case "FSDP":
		return fmt.Errorf("distributed_type FSDP is not supported: use DEEPSPEED with zero_stage 2 (LowLevelZeroPlugin), or --plugin gemini (GeminiPlugin)")
	case "MEGATRON_LM":
		return fmt.Errorf("distributed_type MEGATRON_LM is not supported: use DEEPSPEED with zero_stage 1 (LowLevelZeroPlugin), which splits the optimizer's state, or MULTI_CPU (TorchDDPPlugin)")
	default:
		return fmt.Errorf("distributed_type %s is not supported: training runs on the CPU; use NO, MULTI_CPU (TorchDDPPlugin) or DEEPSPEED with zero_stage 1 or 2 (LowLevelZeroPlugin)", d)
	}
	for _, key := range []string{"fp8_config", "deepspeed_config", "fsdp_config", "parallelism_config", "megatron_lm_config"} {
		if len(c.mapping(key)) > 0 && !slices.Contains(allowed, key) {
			return fmt.Errorf("%s is not supported with distributed_type %s", key, c.text("distributed_type"))
		}
	}
	return nil
}

func (c config) mapping(key string) map[string]any {
	switch v := c[key].(type) {
	case map[string]any:
		return v
	case config:
		return v
	}
	return nil
}

// zeroKeys are the supported keys of deepspeed_config, including some without effect if there is
// only one kind of memory.
var zeroKeys = []string{"zero_stage", "gradient_accumulation_steps", "gradient_clipping", "offload_optimizer_device", "offload_param_device",
	"zero3_init_flag", "zero3_save_16bit_model", "deepspeed_multinode_launcher", "deepspeed_hostfile", "deepspeed_exclusion_filter", "deepspeed_inclusion_filter"}

// zeroSupported rejects DeepSpeed settings that the LowLevelZeroPlugin does not have.
func (c config) zeroSupported() error {
	d := c.mapping("deepspeed_config")
	for key := range d {
		if !slices.Contains(zeroKeys, key) {
			return fmt.Errorf("deepspeed_config.%s is not supported: LowLevelZeroPlugin takes zero_stage, gradient_accumulation_steps and gradient_clipping", key)
		}
	}
	if stage, ok := number64(d["zero_stage"], 2); !ok || stage != float64(int(stage)) || stage < 0 || stage > 3 {
		return fmt.Errorf("deepspeed_config.zero_stage: got %v, want 0, 1 or 2", d["zero_stage"])
	} else if stage == 3 {
		return fmt.Errorf("deepspeed_config.zero_stage 3 is not supported: use zero_stage 2 (LowLevelZeroPlugin), or --plugin gemini (GeminiPlugin)")
	}
	for _, key := range []string{"gradient_accumulation_steps", "gradient_clipping"} {
		if n, ok := number64(d[key], 1); d[key] != "auto" && (!ok || n < 0) {
			return fmt.Errorf("deepspeed_config.%s: got %v, want a number", key, d[key])
		}
	}
	for _, key := range []string{"offload_optimizer_device", "offload_param_device"} {
		if v := d[key]; v != nil && v != "none" && v != "cpu" {
			return fmt.Errorf("deepspeed_config.%s %v is not supported: use cpu or none", key, v)
		}
	}
	return nil
}

// zeroSettings are the settings of a configuration's engine.
type zeroSettings struct {
	plugin       string // value of --plugin
	accumulation int    // 0 if not given
	clipping     float64
}

// zero returns the settings of a supported configuration.
func (c config) zero() zeroSettings {
	z := zeroSettings{plugin: "ddp"}
	if c.text("distributed_type") != "DEEPSPEED" {
		return z
	}
	d := c.mapping("deepspeed_config")
	stage, _ := number64(d["zero_stage"], 2) // Accelerate's default
	z.plugin = [...]string{"ddp", "zero1", "zero2"}[int(stage)]
	steps, _ := number64(d["gradient_accumulation_steps"], 0)
	z.accumulation = int(steps)
	z.clipping, _ = number64(d["gradient_clipping"], 0)
	return z
}

// number64 returns a number from YAML or JSON, or missing for nil.
func number64(v any, missing float64) (float64, bool) {
	switch v := v.(type) {
	case nil:
		return missing, true
	case int:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// Package adapter tests that models with LoRA adapters answer as PEFT does, under every device
// map and together with other rows, and that adapters loaded on demand keep to their memory
// limit.
package adapter

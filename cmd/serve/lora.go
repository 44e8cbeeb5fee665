package main

import (
	"strings"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/lora"
)

// adapterFlags name the adapters that are served with the model.
type adapterFlags struct {
	Lora []string `help:"Serve this PEFT adapter as model NAME; repeat for several." aliases:"lora-modules" sep:"none" placeholder:"NAME=DIR"`
}

// loraDirFlags name the adapters that come and go.
type loraDirFlags struct {
	LoraDir    string `help:"Serve each PEFT adapter folder in DIR; let clients load and unload them." placeholder:"DIR"`
	LoraMemory string `help:"Hold this much of the adapters of --lora-dir (default: a sixteenth of the limit)." placeholder:"SIZE"`
}

// adapters are the folders that --lora names. base is the model's own name.
func (c *adapterFlags) adapters(base string) ([]dispatch.Adapter, error) {
	var list []dispatch.Adapter
	taken := map[string]bool{base: true}
	for _, text := range lines(c.Lora) {
		name, dir, ok := strings.Cut(text, "=")
		switch {
		case !ok || name == "" || dir == "":
			return nil, cmdline.Misusef("--lora %s: it reads NAME=DIR", text)
		case taken[name]:
			return nil, cmdline.Misusef("--lora %s: the name %s is taken", text, name)
		}
		taken[name] = true
		list = append(list, dispatch.Adapter{Name: name, Dir: dir})
	}
	return list, nil
}

// dynamic are the names of the adapters in --lora-dir, and the memory for those in use under a limit of the host's
// memory.
func (c *loraDirFlags) dynamic(limit int64) (names []string, memory int64, err error) {
	if c.LoraDir == "" {
		if c.LoraMemory != "" {
			return nil, 0, cmdline.Misusef("--lora-memory has a meaning only with --lora-dir")
		}
		return nil, 0, nil
	}
	if names, err = lora.List(c.LoraDir); err != nil {
		return nil, 0, cmdline.Misusef("--lora-dir: %w", err)
	}
	if memory = limit / loraShare; c.LoraMemory != "" {
		if memory, err = devicemap.ParseSize(c.LoraMemory); err != nil || memory <= 0 {
			return nil, 0, cmdline.Misusef("--lora-memory %q: want a size such as 256MiB", c.LoraMemory)
		}
	}
	return names, memory, nil
}

// loraShare is the part of the host's memory, 1/loraShare, that adapters of --lora-dir may take.
const loraShare = 16

package main

import (
	"strings"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
)

// adapterFlags name the adapters that are served with the model.
type adapterFlags struct {
	Lora []string `help:"Serve this PEFT adapter as model NAME; repeat for several." aliases:"lora-modules" sep:"none" placeholder:"NAME=DIR"`
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

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/train/finetune"
)

// estimateCmd is train estimate. Its flags are those of train run that change the memory.
type estimateCmd struct {
	modelFlags
	Batch     int    `help:"Count this many sequences per batch." default:"8" aliases:"batch-size"`
	Sequence  int    `help:"Count this many tokens per sequence." default:"512"`
	LoRA      string `name:"lora" help:"Count only adapters, such as r=16,targets=q_proj+v_proj (default: all ways)." placeholder:"r=N,…"`
	DoRA      bool   `name:"dora" help:"Count DoRA's lengths of weight rows, with --lora."`
	Optimizer string `help:"Count the state of adamw, sgd, adafactor or another of train run." default:"adamw" aliases:"optim"`
	Recompute string `help:"Recompute activations: on, off, or auto above 2 GiB per batch." enum:"auto,on,off" default:"auto"`
	Processes int    `name:"num-processes" help:"Count this many ranks of one process, each with its own batches." default:"1"`
	Plugin    string `help:"Share the work between ranks: ddp, zero1, zero2 or gemini." enum:"ddp,zero1,zero2,gemini" default:"ddp"`
	Steps     int    `name:"gradient-accumulation-steps" help:"Count accumulated batches: ranks then have gradients each." default:"1"`
	Memory    string `help:"Fit into this memory (default: what is available here)." placeholder:"SIZE"`
	JSON      bool   `name:"json" help:"Print one JSON object."`
}

// trainEstimate is the output of train estimate --json. Sizes are in bytes.
type trainEstimate struct {
	Model     string     `json:"model"`
	Available int64      `json:"available"` // of memory; 0 if unknown
	Ways      []trainWay `json:"ways"`
}

type trainWay struct {
	finetune.Need
	Fits bool `json:"fits"`
}

// Run prints what each way to fine-tune a model takes.
func (c *estimateCmd) Run(out cmdline.Output) error {
	folder, err := c.folder()
	if err != nil {
		return err
	}
	o := finetune.Defaults()
	o.Batch, o.Sequence, o.LoRA, o.DoRA, o.Optimizer, o.Recompute = c.Batch, c.Sequence, c.LoRA, c.DoRA, c.Optimizer, c.Recompute
	o.NumProcesses, o.Plugin, o.GradientAccumulationSteps = c.Processes, c.Plugin, c.Steps
	e := trainEstimate{Model: folder, Available: dispatch.DescribeHost().AvailableBytes}
	if c.Memory != "" {
		size, err := devicemap.ParseSize(c.Memory)
		if err != nil {
			return cmdline.Misusef("--memory: %w", err)
		}
		e.Available = int64(size)
	}
	needs, err := finetune.Estimate(folder, o)
	if err != nil {
		return misuse(err)
	}
	for _, n := range needs {
		e.Ways = append(e.Ways, trainWay{Need: n, Fits: n.Memory <= e.Available})
	}
	if c.JSON {
		return json.NewEncoder(out).Encode(e)
	}
	return e.print(out, c)
}

// print writes a table of the ways, and the flags of those that fit.
func (e *trainEstimate) print(out cmdline.Output, c *estimateCmd) error {
	fmt.Fprintf(out, "%s: %s of %d tokens per batch, %s, %s; %s of memory\n\n", e.Model, cmdline.Count(c.Batch, "sequence"), c.Sequence, c.Optimizer,
		cmdline.Count(c.Processes, "rank"), devicemap.FormatSize(e.Available))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "way\tweights\tgradients\toptimizer\tactivations\tmemory\tmapped\tdisk\tfits\t")
	text := ""
	for _, n := range e.Ways {
		fmt.Fprintf(w, "%s\t", n.Way)
		for _, bytes := range []int64{n.Weights, n.Gradients, n.Optimizer, n.Activations, n.Memory, n.Mapped, n.Disk} {
			fmt.Fprintf(w, "%s\t", devicemap.FormatSize(bytes))
		}
		if !n.Fits {
			fmt.Fprint(w, "no\t\n")
			continue
		}
		fmt.Fprint(w, "yes\t\n")
		text += fmt.Sprintf("  %-14s  %s\n", n.Way, cmp.Or(n.Flags, "(no flag)"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if text == "" {
		text = "  none: use a smaller --batch or --sequence, or --recompute on\n"
	}
	_, err := fmt.Fprintf(out, "\nmemory: all parts except mapped weights, which are read in the page cache;\nstreamed: the minimum of --max-memory, more is faster;\n"+
		"disk: one checkpoint, and the scratch file of a full fine-tune that streams\n\nways that fit, and their flags of train run:\n%s", text)
	return err
}

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/meta"
)

// estimateCmd is serve estimate.
type estimateCmd struct {
	modelFlags
	Dtypes      []string `help:"Estimate for these dtypes of weights (default: all)." enum:"stored,float32,bfloat16,float16,int8,int4" default:"stored,float32,bfloat16,float16,int8,int4" placeholder:"DTYPE"`
	MaxModelLen int      `help:"Count a KV cache of N tokens (default: the model's context, at most 4096)." placeholder:"N"`
	JSON        bool     `name:"json" help:"Print one JSON object."`
}

// estimate is the output of serve estimate --json. Sizes are in bytes. The sizes of layers, weights
// and training are those of Accelerate's estimate-memory. They may be fractions for dtypes below
// one byte per element.
type estimate struct {
	Model         string          `json:"model"`
	ModelType     string          `json:"model_type"`
	Parameters    int64           `json:"parameters"`
	LargestLayers []string        `json:"largest_layers"`
	KVTokens      int             `json:"kv_tokens"`              // for host_bytes and least_bytes
	Unread        int64           `json:"unread_bytes,omitempty"` // of the published files
	DTypes        []dtypeEstimate `json:"dtypes"`
}

type dtypeEstimate struct {
	DType        string    `json:"dtype"`            // "stored": the dtypes of the checkpoint
	Stored       string    `json:"stored,omitempty"` // the formats of a stored row: "mxfp4, bfloat16"
	LargestLayer float64   `json:"largest_layer_bytes"`
	Total        float64   `json:"total_bytes"`
	Training     *float64  `json:"training_bytes"` // with Adam; null for integers
	Parts        *training `json:"training"`
	KVPer1K      int64     `json:"kv_bytes_per_1k_tokens"` // 1000 tokens
	Activations  int64     `json:"activation_bytes"`
	// Host is for the server with all weights in memory, Least for the one that streams them.
	Host  int64 `json:"host_bytes"`
	Least int64 `json:"least_bytes"`
}

// training is Accelerate's estimate of the memory for training with Adam: each part, and the
// largest part, which Accelerate prints.
type training struct {
	Model     float64 `json:"model"`
	Gradients float64 `json:"gradients"`
	Optimizer float64 `json:"optimizer"`
	Step      float64 `json:"step"`
}

// Run estimates from config.json and, if available, the checkpoint's headers.
func (c *estimateCmd) Run(out cmdline.Output) error {
	path, err := c.path()
	if err != nil {
		return err
	}
	if c.MaxModelLen < 0 {
		return cmdline.Misusef("--max-model-len: got %d, want at least 0", c.MaxModelLen)
	}
	skeleton, checkpoint, err := skeletonAt(path)
	if err != nil {
		return err
	}
	if checkpoint != nil {
		_ = checkpoint.Close() // only headers were read
	}
	e, err := c.estimate(skeleton)
	if err != nil {
		return err
	}
	if e.Model = path; path == "" {
		e.Model = "the embedded demo model"
	}
	if c.JSON {
		return printJSON(out, e)
	}
	return e.print(out)
}

func (c *estimateCmd) estimate(stored *meta.Model) (*estimate, error) {
	skeleton, err := inFloat32(stored.Config)
	if err != nil {
		return nil, err
	}
	sizes, err := devicemap.ComputeModuleSizes(skeleton.Root, "", nil)
	if err != nil {
		return nil, err
	}
	layer, names := sizes.LargestLayer(skeleton.NoSplitClasses)
	e := &estimate{ModelType: stored.Config.ModelType, Parameters: skeleton.Root.NumParameters(), LargestLayers: names, Unread: stored.UnreadBytes}
	for _, dtype := range c.Dtypes {
		if dtype == "stored" {
			if err := c.addStored(e, stored, sizes.Total()); err != nil {
				return nil, err
			}
			continue
		}
		size, err := devicemap.DTypeByteSize(dtype)
		if err != nil {
			return nil, err
		}
		o := dispatch.Options{Context: c.MaxModelLen, MaxSequences: usualSequences, Serving: true, KVDType: meta.BFloat16}
		if dtype == "float32" {
			o.KVDType = meta.Float32
		}
		needs, err := dispatch.EstimateMemory(skeleton, o, dtype)
		if err != nil {
			return nil, err
		}
		e.KVTokens = needs.KVTokens
		d := dtypeEstimate{DType: dtype, LargestLayer: layer * size / 4, Total: sizes.Total() * size / 4,
			KVPer1K: needs.KVPer1K, Activations: needs.Activations, Host: needs.All, Least: needs.Least}
		d.Parts, d.Training = trainingOf(sizes.Total(), dtype)
		e.DTypes = append(e.DTypes, d)
	}
	return e, nil
}

// addStored adds the row for the model as its checkpoint stores it. The formats come from the
// headers or, without them, from the config. float32 is the size of the model in float32.
func (c *estimateCmd) addStored(e *estimate, stored *meta.Model, float32 float64) error {
	sizes, err := devicemap.ComputeModuleSizes(stored.Root, "", nil)
	if err != nil {
		return err
	}
	layer, _ := sizes.LargestLayer(stored.NoSplitClasses)
	needs, err := dispatch.EstimateMemory(stored, dispatch.Options{Context: c.MaxModelLen, MaxSequences: usualSequences, Serving: true}, "")
	if err != nil {
		return err
	}
	e.KVTokens = needs.KVTokens
	formats := storedFormats(stored.Root)
	d := dtypeEstimate{DType: "stored", Stored: strings.Join(formats, ", "), LargestLayer: layer, Total: sizes.Total(),
		KVPer1K: needs.KVPer1K, Activations: needs.Activations, Host: needs.All, Least: needs.Least}
	if len(formats) == 1 {
		d.Parts, d.Training = trainingOf(float32, formats[0])
	}
	e.DTypes = append(e.DTypes, d)
	return nil
}

// storedFormats returns the formats and dtypes in which a model's matrices are stored, by falling
// total size.
func storedFormats(root *meta.Module) []string {
	bytes := map[string]int64{}
	for _, p := range root.AllParams() {
		if p.SameAs != nil || len(p.Shape) < 2 {
			continue
		}
		name := p.DType.String()
		for i := range p.Sources {
			if q := p.Sources[i].Quant; q != nil {
				name = q.Format.String()
			}
		}
		bytes[name] += p.Bytes()
	}
	return slices.SortedFunc(maps.Keys(bytes), func(a, b string) int {
		return cmp.Or(cmp.Compare(bytes[b], bytes[a]), strings.Compare(a, b))
	})
}

// trainingOf returns Accelerate's estimate for training a model whose weights take total bytes in
// float32, with Adam and a batch of 1: in float32, or mixed with a 16-bit type. It returns nil for
// integers.
func trainingOf(total float64, dtype string) (parts *training, largest *float64) {
	switch dtype {
	case "float32":
		parts = &training{Model: total, Gradients: total, Optimizer: 2 * total, Step: 4 * total}
	case "bfloat16", "float16":
		parts = &training{Model: total, Gradients: 1.5 * total, Optimizer: 2 * total, Step: 2 * total}
	default:
		return nil, nil
	}
	most := max(parts.Model, parts.Gradients, parts.Optimizer, parts.Step)
	return parts, &most
}

// inFloat32 returns the model that config describes, with all weights in float32.
func inFloat32(config *meta.Config) (*meta.Model, error) {
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(config.Raw()))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil {
		return nil, err // cannot happen: the config has been read before
	}
	setFloat32(fields)
	if text, ok := fields["text_config"].(map[string]any); ok {
		setFloat32(text)
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	if config, err = meta.ReadConfig(raw); err != nil {
		return nil, err
	}
	return meta.New(config, nil)
}

func setFloat32(fields map[string]any) {
	delete(fields, "torch_dtype")
	delete(fields, "quantization_config")
	fields["dtype"] = "float32"
}

func (e *estimate) print(out cmdline.Output) error {
	size := func(bytes float64) string { return devicemap.FormatSize(int64(bytes)) }
	fmt.Fprintf(out, "%s: %s, %d parameters\n\n", e.Model, e.ModelType, e.Parameters)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "dtype\tlargest layer\ttotal\ttraining, Adam\tKV, 1k tokens\tactivations\thost, all\thost, minimum\t")
	for _, d := range e.DTypes {
		adam := "-"
		if d.Training != nil {
			adam = size(*d.Training)
		}
		name := d.DType
		if d.Stored != "" {
			name += " (" + d.Stored + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, size(d.LargestLayer), size(d.Total), adam,
			size(float64(d.KVPer1K)), size(float64(d.Activations)), size(float64(d.Host)), size(float64(d.Least)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	largest := strings.Join(e.LargestLayers[:min(len(e.LargestLayers), 1)], "")
	if n := len(e.LargestLayers); n > 1 {
		largest += fmt.Sprintf(" and %d like it", n-1)
	}
	if e.Unread > 0 {
		largest += fmt.Sprintf("\nnot read: %s of the published files, for predicting several tokens ahead", devicemap.FormatSize(e.Unread))
	}
	_, err := fmt.Fprintf(out, "\nlargest layer: %s\nhost: a server with weights, a KV cache of %d tokens, activations, requests and the runtime;\n"+
		"all: every weight in memory; minimum: weights stream from the disk\n", largest, e.KVTokens)
	return err
}

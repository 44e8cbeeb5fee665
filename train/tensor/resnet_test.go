package tensor

import (
	"fmt"
	"math"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/optim"
)

// resnetTrace is a run of the reference.
type resnetTrace struct {
	Accumulation float64 `json:"gradient_accumulation"`
	Optimizer    struct {
		LR, Momentum float64
		WeightDecay  float64 `json:"weight_decay"`
	}
	Normalize struct{ Mean, Std []float64 }
	Cases     []struct {
		Mode       string
		Final      string
		Iterations []resnetStep
	}
}

type resnetStep struct {
	Loss     float64
	Norm     float64 `json:"accumulated_grad_norm"`
	Stepped  bool
	Mean     []float64 `json:"bn1_running_mean"`
	Variance []float64 `json:"bn1_running_var"`
	Conv1    []float64 `json:"conv1_first10"`
	Bias     []float64 `json:"fc_bias"`
}

// TestGoldenResnet trains a small ResNet18 with both windows of accumulation.
func TestGoldenResnet(t *testing.T) {
	var trace resnetTrace
	dir, cases := golden.Path(t, "train", "resnet"), 0
	if golden.JSON(t, dir+"/trace.json", &trace) {
		data := readArrays(t, dir+"/data.safetensors")
		for _, c := range trace.Cases {
			t.Run(c.Mode, func(t *testing.T) {
				cases++
				net := newResnet(readArrays(t, dir+"/init.safetensors"))
				o, err := optim.NewSGD(net.list, optim.SGDOptions{LR: trace.Optimizer.LR, Momentum: trace.Optimizer.Momentum, WeightDecay: trace.Optimizer.WeightDecay})
				if err != nil {
					t.Fatal(err)
				}
				for i, want := range c.Iterations {
					net.tape = NewTape(Options{})
					x, labels := imageBatch(data, i, trace.Normalize.Mean, trace.Normalize.Std)
					loss := net.tape.CrossEntropy(net.forward(net.tape.Input(x.floats(), x.shape...)), labels, CrossEntropyOptions{})
					if err := net.tape.Backward(loss, 1/float32(trace.Accumulation)); err != nil {
						t.Fatal(err)
					}
					norm := optim.Norm(net.list, 2)
					if d := math.Abs(float64(loss.Item()) - want.Loss); !(d <= 2e-4) || !(math.Abs(norm-want.Norm) <= 5e-3*want.Norm) {
						t.Fatalf("iteration %d: loss %g, norm %g, want %g and %g", i, loss.Item(), norm, want.Loss, want.Norm)
					}
					if i == 0 {
						net.sameGradients(t, dir+"/first_batch_grads.safetensors", trace.Accumulation)
					}
					if want.Stepped {
						if err := o.Step(); err != nil {
							t.Fatal(err)
						}
						o.ZeroGrad()
					}
					near(t, "running mean", want.Mean, net.norms["bn1"].Mean)
					near(t, "running variance", want.Variance, net.norms["bn1"].Var)
					near(t, "first weights", want.Conv1, net.params["conv1.weight"].Data()[:len(want.Conv1)])
					near(t, "last bias", want.Bias, net.params["fc.bias"].Data())
				}
				if c.Final != "" {
					net.sameWeights(t, dir+"/"+c.Final)
				}
			})
		}
	}
	golden.Count(t, "train/resnet", cases)
}

// near allows what rounding grows to in the iterations of a trace.
func near(t *testing.T, what string, want []float64, got []float32) {
	t.Helper()
	if len(want) != len(got) && want != nil {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for k, m := range want {
		if !(math.Abs(float64(got[k])-m) <= 5e-4*max(1, math.Abs(m))) {
			t.Fatalf("%s: element %d is %g, want %g", what, k, got[k], m)
		}
	}
}

// sameGradients compares the first batch's, which the file holds undivided by the window.
func (r *resnet) sameGradients(t *testing.T, file string, window float64) {
	for name, want := range readArrays(t, file) {
		p := r.params[name]
		if p == nil {
			t.Errorf("gradient of %s, which the model lacks", name)
			continue
		}
		worst, largest := 0.0, 0.0
		for k, w := range want.v {
			worst, largest = max(worst, math.Abs(window*float64(p.Grad()[k])-w)), max(largest, math.Abs(w))
		}
		if !(worst <= 1e-4*largest) {
			t.Errorf("gradient of %s is %g off, of %g", name, worst, largest)
		}
	}
}

func (r *resnet) sameWeights(t *testing.T, file string) {
	for name, want := range readArrays(t, file) {
		if p := r.params[name]; p != nil {
			near(t, name, want.v, p.Data())
		}
	}
}

func readArrays(t *testing.T, path string) map[string]goldenArray {
	t.Helper()
	file, err := golden.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return goldenArrays(t, file)
}

// imageBatch is batch i of the images, normalised.
func imageBatch(data map[string]goldenArray, i int, mean, std []float64) (goldenArray, []int) {
	images, all := data["images"], data["labels"]
	batch := goldenArray{shape: images.shape[1:]}
	n := count(batch.shape)
	plane := batch.shape[2] * batch.shape[3]
	for k, v := range images.v[i*n : (i+1)*n] {
		c := k / plane % batch.shape[1]
		batch.v = append(batch.v, float64((float32(v)/255-float32(mean[c]))/float32(std[c])))
	}
	var labels []int
	for _, l := range all.v[i*all.shape[1] : (i+1)*all.shape[1]] {
		labels = append(labels, int(l))
	}
	return batch, labels
}

// resnet is torchvision's ResNet18 of any width.
type resnet struct {
	tape   *Tape
	params map[string]*Parameter
	norms  map[string]*BatchNorm
	list   []optim.Param
}

// stepped lets an optimizer step a parameter.
type stepped struct{ *Parameter }

func (p stepped) Data() []float32 { return p.Parameter.Data() }
func (p stepped) Grad() []float32 { return p.Parameter.Grad() }

func newResnet(init map[string]goldenArray) *resnet {
	r := &resnet{params: map[string]*Parameter{}, norms: map[string]*BatchNorm{}}
	for name, a := range init {
		var norm, field string
		if k := len(name) - len(".running_mean"); k > 0 && name[k:] == ".running_mean" {
			norm, field = name[:k], "mean"
		} else if k := len(name) - len(".running_var"); k > 0 && name[k:] == ".running_var" {
			norm, field = name[:k], "var"
		} else if len(a.shape) > 0 {
			p := NewParameter(a.floats(), a.shape...)
			r.params[name] = p
			r.list = append(r.list, stepped{p})
			continue
		} else {
			continue // a count of batches
		}
		if r.norms[norm] == nil {
			r.norms[norm] = NewBatchNorm(len(a.v))
		}
		if field == "mean" {
			r.norms[norm].Mean = a.floats()
		} else {
			r.norms[norm].Var = a.floats()
		}
	}
	return r
}

func (r *resnet) use(name string) *Tensor { return r.tape.Use(r.params[name]) }

// conv is a convolution without bias and its norm.
func (r *resnet) conv(x *Tensor, conv, norm string, o ConvOptions) *Tensor {
	o.Double = true // or rounding decides in a few pools, and they in the losses that follow
	x = r.tape.Conv2D(x, r.use(conv+".weight"), nil, o)
	return r.tape.BatchNorm2D(x, r.use(norm+".weight"), r.use(norm+".bias"), r.norms[norm])
}

func (r *resnet) forward(x *Tensor) *Tensor {
	tp := r.tape
	x = tp.ReLU(r.conv(x, "conv1", "bn1", ConvOptions{Stride: 2, Padding: 3}))
	x = tp.MaxPool2D(x, 3, 2, 1)
	for layer := 1; layer <= 4; layer++ {
		for block := range 2 {
			name, stride := fmt.Sprintf("layer%d.%d.", layer, block), 1
			if layer > 1 && block == 0 {
				stride = 2
			}
			y := tp.ReLU(r.conv(x, name+"conv1", name+"bn1", ConvOptions{Stride: stride, Padding: 1}))
			y = r.conv(y, name+"conv2", name+"bn2", ConvOptions{Padding: 1})
			if r.params[name+"downsample.0.weight"] != nil {
				x = r.conv(x, name+"downsample.0", name+"downsample.1", ConvOptions{Stride: stride})
			}
			x = tp.ReLU(tp.Add(y, x))
		}
	}
	x = tp.Reshape(tp.AdaptiveAvgPool2D(x, 1, 1), x.Shape()[0], -1)
	return tp.Linear(x, r.use("fc.weight"), r.use("fc.bias"))
}

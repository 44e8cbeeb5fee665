package meta

// The layers of which architectures are composed. Each method adds one child to the scope.

// Linear adds y = x·Wᵀ + b with weight [out, in].
func (b *Builder) Linear(name string, in, out int, bias bool) *Builder {
	c := b.Child(name, "Linear").Runs(KindLinear, &LinearSpec{In: in, Out: out})
	c.Param("weight", out, in)
	if bias {
		c.Param("bias", out)
	}
	return c
}

// Conv1D adds GPT-2's y = x·W + b with weight [in, out].
func (b *Builder) Conv1D(name string, in, out int) *Builder {
	c := b.Child(name, "Conv1D").Runs(KindLinear, &LinearSpec{In: in, Out: out, Transposed: true})
	c.Param("weight", in, out)
	c.Param("bias", out)
	return c
}

// Embedding adds a table of rows vectors. published are the sources of published files that have
// other tensors than one of its name.
func (b *Builder) Embedding(name, class string, rows, dim int, published ...TensorSource) *Builder {
	c := b.Child(name, class).Runs(KindEmbedding, &EmbeddingSpec{Rows: rows, Dim: dim})
	if published == nil {
		c.Param("weight", rows, dim)
	} else {
		c.ParamFrom("weight", []int{rows, dim}, published, []TensorSource{{Tensor: c.path + ".weight"}})
	}
	return c
}

// LayerNorm adds a norm that subtracts the mean.
func (b *Builder) LayerNorm(name string, dim int, eps float64, bias bool) *Builder {
	c := b.Child(name, "LayerNorm").Runs(KindNorm, &NormSpec{Dim: dim, Eps: float32(eps), Layer: true})
	c.Param("weight", dim)
	if bias {
		c.Param("bias", dim)
	}
	return c
}

// Activation adds a pointwise activation function as a module.
func (b *Builder) Activation(name, class string, act Activation) {
	b.Child(name, class).Runs(KindActivation, &ActivationSpec{act})
}

// Dropout adds a module that does nothing in inference but has an entry in device maps.
func (b *Builder) Dropout(name string) { b.Child(name, "Dropout") }

// Rotary adds the module with rope's frequencies. It holds them twice: the current frequencies,
// and the original ones for rope types that depend on the length.
func (b *Builder) Rotary(class string, rope *RopeSpec) {
	b.rotaryNamed("rotary_emb", class, rope)
}

func (b *Builder) rotaryNamed(name, class string, rope *RopeSpec) {
	c := b.Child(name, class)
	c.Buffer("inv_freq", Float32, false, rope.Dim/2)
	c.Buffer("original_inv_freq", Float32, false, rope.Dim/2)
}

// activation is a pointwise function with the class of its module, by its name in config.json.
type activation struct {
	act   Activation
	class string
}

// activation reads the name of a pointwise function.
func (f *fields) activation(name, def string) activation {
	switch text := f.text(name, def); text {
	case "silu":
		return activation{ActSiLU, "SiLUActivation"}
	case "swish":
		return activation{ActSiLU, "SiLU"}
	case "gelu", "gelu_python":
		return activation{ActGELU, "GELUActivation"}
	case "gelu_new":
		return activation{ActGELUTanh, "NewGELUActivation"}
	case "gelu_fast":
		return activation{ActGELUTanh, "FastGELUActivation"}
	case "gelu_accurate":
		return activation{ActGELUTanh, "AccurateGELUActivation"}
	case "gelu_pytorch_tanh", "gelu_python_tanh":
		return activation{ActGELUTanh, "GELUTanh"}
	case "relu2":
		return activation{ActReLU2, "ReLUSquaredActivation"}
	case "relu":
		return activation{ActReLU, "ReLU"}
	case "tanh":
		return activation{ActTanh, "Tanh"}
	case "sigmoid":
		return activation{ActSigmoid, "Sigmoid"}
	case "linear":
		return activation{ActNone, "LinearActivation"}
	default:
		f.fail(name, "activation %.40q is not supported", text)
		return activation{}
	}
}

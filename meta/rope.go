package meta

import (
	"cmp"
	"maps"
	"math"
)

// ropeDefaults holds a config class's defaults for its rotary embedding.
type ropeDefaults struct {
	theta        float64
	thetaField   string  // "" means rope_theta
	partial      float64 // rotated part of a head; 0: all, and the file's value is ignored
	partialField string  // "" means partial_rotary_factor
	original     int     // for classes that have original_max_position_embeddings
	allLong      bool    // "su" and "yarn" mean longrope
	interleaved  bool
	roundUp      bool           // an odd number of rotated dimensions is rounded up to an even one
	proportional bool           // the type proportional is supported and rotates a part of a head; other types rotate all of it
	alpha        bool           // a dynamic rope with alpha has a fixed base
	scaling      map[string]any // for classes that scale by default
	headDim      int
	context      int // max_position_embeddings
}

// rope reads the rotary embedding: rope_theta and rope_scaling of published configs, or
// rope_parameters of transformers 5. As in transformers, a rope_scaling that is not empty takes
// precedence.
func (f *fields) rope(def ropeDefaults) *RopeSpec {
	return f.ropeFrom(f.ropeParameters(def), false, def)
}

// ropeParameters returns the object with the parameters of the rotary embedding, or nil.
func (f *fields) ropeParameters(def ropeDefaults) *fields {
	p := f.object("rope_scaling")
	if p == nil {
		p = f.object("rope_parameters")
	}
	if p == nil && def.scaling != nil {
		p = &fields{at: "rope_parameters.", values: def.scaling, errs: f.errs}
	}
	return p
}

// layerRopes reads the ropes of layers with full attention and of those with a window. Published
// files have one scaling, which applies only to full layers; transformers 5 nests the ropes by
// layer type.
func (f *fields) layerRopes(full, local ropeDefaults) (*RopeSpec, *RopeSpec) {
	var fullParams, localParams *fields
	if p := f.object("rope_parameters"); p != nil {
		fullParams, localParams = p.object("full_attention"), p.object("sliding_attention")
	}
	if p := f.object("rope_scaling"); p != nil {
		fullParams = p
		if !p.has("rope_type") { // the reference merges it into parameters that have this field
			values := maps.Clone(p.values)
			values["rope_type"] = "default"
			fullParams = &fields{at: p.at, values: values, errs: p.errs}
		}
	}
	return f.ropeFrom(fullParams, true, full), f.ropeFrom(localParams, true, local)
}

// ropeFrom reads a rotary embedding with its parameters in p, which may be nil. nested is set if
// the config has several sets by layer type.
func (f *fields) ropeFrom(p *fields, nested bool, def ropeDefaults) *RopeSpec {
	r := &RopeSpec{
		Theta:       f.positive(or(def.thetaField, "rope_theta"), def.theta),
		Dim:         def.headDim,
		Interleaved: def.interleaved,
		Factor:      1,
		Original:    def.context,
		Max:         def.context,
	}
	if p != nil {
		r.Theta = p.positive("rope_theta", r.Theta)
	}
	if def.partial != 0 {
		partial := f.positive(or(def.partialField, "partial_rotary_factor"), def.partial)
		if p != nil {
			partial = p.positive("partial_rotary_factor", partial)
		}
		if r.Dim = int(float64(def.headDim) * min(partial, 2)); partial > 1 || r.Dim == 0 {
			f.fail("partial_rotary_factor", "%v of a head of %d", partial, def.headDim)
			r.Dim = def.headDim
		}
	}
	if r.Dim%2 != 0 && def.roundUp && r.Dim < def.headDim {
		r.Divisor = r.Dim
		r.Dim++
	}
	if r.Dim%2 != 0 {
		f.fail("head_dim", "rope cannot rotate %d dimensions, an odd number", r.Dim)
	}
	if p == nil {
		return r
	}
	const original = "original_max_position_embeddings"
	r.Original = p.size(original, r.Max)
	if !nested { // the reference prefers the field next to the parameters
		if def.original != 0 {
			r.Original = def.original
		}
		r.Original = f.size(original, r.Original)
	}
	if part, kind := p.float("partial_rotary_factor", 1), p.text("rope_type", "default"); def.proportional && part != 1 && kind != "default" && kind != "proportional" {
		p.fail("partial_rotary_factor", "%v with rope_type %.40q is not supported", part, kind)
	}
	switch {
	case def.proportional && p.text("rope_type", "") == "proportional":
		p.proportional(r)
	case def.alpha && p.scaleTheta(r):
	default:
		p.scaling(r, def.allLong)
	}
	// The reference looks for truncate next to the layer types, but files with layer types do not
	// have it there.
	r.NoTruncate = r.NoTruncate && !nested
	return r
}

// scaling reads the fields of one rope type.
func (p *fields) scaling(r *RopeSpec, allLong bool) {
	name := "rope_type"
	if !p.has(name) && p.has("type") {
		name = "type"
	}
	text := p.text(name, "default")
	if allLong && (text == "su" || text == "yarn") {
		text = "longrope"
	}
	switch text {
	case "default", "mrope": // the axes of mrope are equal for text
	case "linear":
		r.Type = RopeLinear
		r.Factor = p.required("factor")
	case "dynamic":
		r.Type = RopeDynamic
		r.Factor = p.required("factor")
		if r.Dim <= 2 {
			p.fail(name, "dynamic scaling needs more than %d rotated dimensions", r.Dim)
		}
	case "yarn":
		r.Type = RopeYarn
		p.yarn(r)
	case "llama3":
		r.Type = RopeLlama3
		r.Factor = p.required("factor")
		r.LowFreq, r.HighFreq = p.required("low_freq_factor"), p.required("high_freq_factor")
		if r.LowFreq == r.HighFreq {
			p.fail("high_freq_factor", "equal to low_freq_factor")
		}
	case "longrope":
		r.Type = RopeLongRope
		p.longRope(r)
	default:
		p.fail(name, "%.40q is not supported (supported: default, linear, dynamic, yarn, llama3, longrope)", text)
	}
}

// proportional reads a rope that rotates a part of the dimensions with the frequencies of all of
// them.
func (p *fields) proportional(r *RopeSpec) {
	partial := p.positive("partial_rotary_factor", 1)
	if partial > 1 {
		p.fail("partial_rotary_factor", "%v of a head of %d", partial, r.Dim)
		partial = 1
	}
	r.Type, r.Factor = RopeProportional, p.positive("factor", 1)
	r.Angles = int(partial * float64(r.Dim) / 2)
}

// scaleTheta scales the base of a dynamic rope that has alpha, once for all lengths. It reports
// whether there is an alpha.
func (p *fields) scaleTheta(r *RopeSpec) bool {
	alpha := p.float("alpha", 0)
	if alpha == 0 || p.ropeType() != "dynamic" {
		return false
	}
	if r.Dim <= 2 || alpha < 0 {
		p.fail("alpha", "%v for %d rotated dimensions is not supported", alpha, r.Dim)
		return true
	}
	r.Theta *= math.Pow(alpha, float64(r.Dim)/float64(r.Dim-2))
	return true
}

// ropeType returns the name of the type.
func (p *fields) ropeType() string {
	if !p.has("rope_type") {
		return p.text("type", "default")
	}
	return p.text("rope_type", "default")
}

// required returns a positive number that has no default.
func (p *fields) required(name string) float64 {
	if !p.has(name) {
		p.fail(name, "missing")
		return 1
	}
	return p.positive(name, 1)
}

func (p *fields) yarn(r *RopeSpec) {
	r.Factor = p.positive("factor", float64(r.Max)/float64(r.Original))
	r.AttentionFactor = p.attentionFactor()
	r.MScale, r.MScaleAllDim = p.float("mscale", 0), p.float("mscale_all_dim", 0)
	// transformers treats 0 as missing.
	if r.BetaFast = p.float("beta_fast", 32); r.BetaFast == 0 {
		r.BetaFast = 32
	}
	if r.BetaSlow = p.float("beta_slow", 1); r.BetaSlow == 0 {
		r.BetaSlow = 1
	}
	if r.BetaFast < 0 || r.BetaSlow < 0 {
		p.fail("beta_fast", "negative beta")
	}
	if r.Theta == 1 {
		p.fail("rope_theta", "yarn has no correction range for a theta of 1")
	}
	r.NoTruncate = !p.bool("truncate", true)
}

func (p *fields) longRope(r *RopeSpec) {
	r.Factor = p.positive("factor", float64(r.Max)/float64(r.Original))
	r.AttentionFactor = p.attentionFactor()
	r.ShortFactor = p.factors("short_factor", r.Dim/2)
	r.LongFactor = p.factors("long_factor", r.Dim/2)
	if r.Original == 1 && r.Factor > 1 && r.AttentionFactor == 0 {
		p.fail("original_max_position_embeddings", "longrope has no attention factor for 1")
	}
}

// factors returns a list of want positive numbers.
func (p *fields) factors(name string, want int) []float64 {
	list := p.floats(name)
	if len(list) != want {
		p.fail(name, "%d factors for %d frequencies", len(list), want)
	}
	for _, x := range list {
		if !(x > 0) {
			p.fail(name, "%v is not above 0", x)
		}
	}
	return list
}

// attentionFactor returns the factor, or 0 if a formula determines it.
func (p *fields) attentionFactor() float64 {
	if !p.has("attention_factor") {
		return 0
	}
	return p.positive("attention_factor", 1)
}

// contextOf returns the context of a model with this embedding: the config's, or the trained
// length times yarn's factor if that is more.
func (r *RopeSpec) contextOf(stated int) int {
	if r == nil || r.Type != RopeYarn {
		return stated
	}
	return max(stated, int(min(float64(r.Original)*r.Factor, maxSize)))
}

// reachOf returns the number of tokens for which a linear or dynamic scaling is made. For these,
// the config states the trained length, which is also the context. It returns 0 for other
// embeddings.
func (r *RopeSpec) reachOf(stated int) int {
	if r == nil || r.Type != RopeLinear && r.Type != RopeDynamic {
		return 0
	}
	return int(min(float64(stated)*r.Factor, maxSize))
}

// Frequencies returns the Dim/2 inverse frequencies for a sequence of length tokens, and the
// factor of cos and sin. Only RopeDynamic, RopeLongRope and LongScale depend on length, the total
// number of tokens in the sequence.
//
// The formulas and their float32 arithmetic are those of transformers' modeling_rope_utils.
func (r *RopeSpec) Frequencies(length int) (inv []float32, attentionScale float64) {
	inv, attentionScale = r.frequencies(length)
	switch {
	case r.ShortScale == 0:
	case length > r.Original:
		attentionScale = r.LongScale
	default:
		attentionScale = r.ShortScale
	}
	return inv, attentionScale
}

func (r *RopeSpec) frequencies(length int) (inv []float32, attentionScale float64) {
	if r.Within != nil {
		all, scale := r.Within.frequencies(length)
		for i := range r.Dim / 2 {
			inv = append(inv, all[(r.From+i)%len(all)])
		}
		return inv, scale
	}
	if r.Spread {
		half := *r
		half.Dim, half.Spread = r.Dim/2, false
		short, scale := half.frequencies(length)
		inv = make([]float32, r.Dim/2)
		for i, x := range short {
			inv[2*i] = x
		}
		return inv, scale
	}
	switch r.Type {
	case RopeLinear:
		inv = inverse(r.powers(float32(r.Theta)))
		for i := range inv {
			inv[i] /= float32(r.Factor)
		}
	case RopeDynamic:
		inv = inverse(r.powers(r.dynamicBase(length)))
	case RopeYarn:
		return r.yarn()
	case RopeLlama3:
		inv = r.llama3()
	case RopeLongRope:
		return r.longRope(length)
	case RopeProportional:
		inv = inverse(r.powers(float32(r.Theta)))
		for i := range inv {
			if inv[i] /= float32(r.Factor); i >= r.Angles {
				inv[i] = 0
			}
		}
	case RopeNone:
		inv = make([]float32, r.Dim/2)
	default:
		inv = inverse(r.powers(float32(r.Theta)))
	}
	return inv, 1
}

// powers returns base^(2i/Divisor).
func (r *RopeSpec) powers(base float32) []float32 {
	pow := make([]float32, (r.Dim+1)/2)
	for i := range pow {
		exponent := float32(2*i) / float32(r.stated())
		pow[i] = float32(math.Pow(float64(base), float64(exponent)))
	}
	return pow
}

// stated returns the number of dimensions of the config, which is odd if Dim was rounded up.
func (r *RopeSpec) stated() int { return cmp.Or(r.Divisor, r.Dim) }

func inverse(x []float32) []float32 {
	for i := range x {
		x[i] = 1 / x[i]
	}
	return x
}

// dynamicBase increases theta with lengths beyond the config's maximum.
func (r *RopeSpec) dynamicBase(length int) float32 {
	if length <= r.Max {
		return float32(r.Theta)
	}
	grown := float32(r.Factor)*float32(length)/float32(r.Max) - float32(r.Factor-1)
	return float32(r.Theta) * float32(math.Pow(float64(grown), float64(r.stated())/float64(r.stated()-2)))
}

// llama3 divides low frequencies by the factor, keeps high ones, and interpolates between the two.
func (r *RopeSpec) llama3() []float32 {
	inv := inverse(r.powers(float32(r.Theta)))
	original, factor := float64(r.Original), float32(r.Factor)
	long, short := float32(original/r.LowFreq), float32(original/r.HighFreq)
	for i, f := range inv {
		wave := float32(1/f) * float32(2*math.Pi)
		switch {
		case wave > long:
			inv[i] = f / factor
		case wave >= short:
			smooth := (float32(1/wave)*float32(original) - float32(r.LowFreq)) / float32(r.HighFreq-r.LowFreq)
			slow := float32(float32(1-smooth)*f) / factor
			inv[i] = slow + float32(smooth*f)
		}
	}
	return inv
}

// yarn interpolates between kept and divided frequencies, over the dimensions that rotate between
// BetaSlow and BetaFast times in the trained length.
func (r *RopeSpec) yarn() ([]float32, float64) {
	low, high := r.correctionDim(r.BetaFast), r.correctionDim(r.BetaSlow)
	if !r.NoTruncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(r.stated()-1))
	if low == high {
		high += 0.001 // the reference's guard against a ramp of zero width
	}
	inv := r.powers(float32(r.Theta))
	for i, pow := range inv {
		at := min(i, r.stated()/2-1) // of 3 dimensions, the reference has one ramp for both frequencies
		ramp := (float32(at) - float32(low)) / float32(high-low)
		kept := 1 - min(max(ramp, 0), 1)
		divided := float32(1 / float32(float32(r.Factor)*pow))
		inv[i] = float32(divided*(1-kept)) + float32(float32(1/pow)*kept)
	}
	scale := r.AttentionFactor
	switch {
	case scale != 0:
	case r.MScale != 0 && r.MScaleAllDim != 0:
		scale = yarnScale(r.Factor, r.MScale) / yarnScale(r.Factor, r.MScaleAllDim)
	default:
		scale = yarnScale(r.Factor, 1)
	}
	return inv, scale
}

// correctionDim returns the dimension that completes the given number of turns within the trained
// length.
func (r *RopeSpec) correctionDim(turns float64) float64 {
	return float64(r.stated()) * math.Log(float64(r.Original)/(turns*2*math.Pi)) / (2 * math.Log(r.Theta))
}

func yarnScale(factor, mscale float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*mscale*math.Log(factor) + 1
}

// longRope divides each frequency by its own factor from one of two lists.
func (r *RopeSpec) longRope(length int) ([]float32, float64) {
	factors := r.ShortFactor
	if length > r.Original {
		factors = r.LongFactor
	}
	inv := r.powers(float32(r.Theta))
	for i, pow := range inv {
		inv[i] = float32(1 / float32(float32(factors[i])*pow))
	}
	scale := r.AttentionFactor
	if scale == 0 {
		scale = 1
		if r.Factor > 1 {
			scale = math.Sqrt(1 + math.Log(r.Factor)/math.Log(float64(r.Original)))
		}
	}
	return inv, scale
}

package meta

// fewBits returns the row of GPTQ with rows integers in the given number of int32.
func fewBits(name string, rows, words int, zeros func(*Quant, int, int) (int, int), added func(*quantised) [3]uint32) Format {
	return Format{
		Name: name, Published: true, Trim: ".weight", Layout: InputsFirst,
		Codes:  Packed{Suffix: ".qweight", DTypes: []DType{Int32}, Rows: rows, Columns: 1, Words: words},
		Scales: Companion{Suffix: ".scales", DTypes: halfFirst, size: perBlock},
		Zeros:  Companion{Suffix: ".qzeros", DTypes: []DType{Int32}, size: zeros},
		Index:  Companion{Suffix: ".g_idx", DTypes: []DType{Int32}, Optional: true, size: perRow},
		group:  (*quantised).groupOfInputs, zeroWords: added,
		weights: weightPlace.linearOrExperts,
	}
}

var (
	// sixteenths is the size of zeros with 16 2-bit integers in an int32, thirds of those with 32
	// 3-bit integers in three.
	sixteenths = func(q *Quant, rows, columns int) (int, int) { return ceil(rows, q.Rows), columns / 16 }
	thirds     = func(q *Quant, rows, columns int) (int, int) { return ceil(rows, q.Rows), columns / 32 * 3 }
)

// The numbers that add 1 to each integer of a word, and to each 3-bit integer of three words. Like GPTQModel, Heft
// adds them to whole words: a zero of 0, which the first version stores as -1, has borrowed from the integers after it.
var (
	ones2 = [3]uint32{0x55555555, 0x55555555, 0x55555555}
	ones3 = [3]uint32{0x49249249, 0x92492492, 0x24924924}
	ones4 = [3]uint32{0x11111111, 0x11111111, 0x11111111}
	ones8 = [3]uint32{0x01010101, 0x01010101, 0x01010101}
)

func (q *quantised) zeroWords2() [3]uint32 { return q.firstVersion(ones2) }
func (q *quantised) zeroWords4() [3]uint32 { return q.firstVersion(ones4) }
func (q *quantised) zeroWords8() [3]uint32 { return q.firstVersion(ones8) }

// firstVersion returns ones if zeros are those of GPTQ's first version, less than the true ones by 1.
func (q *quantised) firstVersion(ones [3]uint32) [3]uint32 {
	if q.bias == 0 {
		return [3]uint32{}
	}
	return ones
}

// zeroWords3 returns what GPTQ's first version subtracts from three words of zeros. GPTQModel
// subtracts the numbers of the first and the third word from each other's, and adds them so again.
func (q *quantised) zeroWords3() [3]uint32 {
	switch {
	case q.bias == 0:
		return [3]uint32{}
	case q.gptqModel:
		return [3]uint32{ones3[2], ones3[1], ones3[0]}
	}
	return ones3
}

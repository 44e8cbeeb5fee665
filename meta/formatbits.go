package meta

// fourBits is a format of bitsandbytes.
func fourBits(table string) Format {
	return Format{
		Name: "bitsandbytes " + table, Published: true,
		Codes:  Packed{DTypes: []DType{Uint8}, Rows: 1, Columns: 2, Flat: true},
		Scales: Companion{Suffix: ".absmax", DTypes: []DType{Float32, Uint8}, size: perElements},
		Zeros:  Companion{Suffix: ".nested_absmax", DTypes: []DType{Float32}, Optional: true, size: nested},
		Index:  Companion{Suffix: ".nested_quant_map", DTypes: []DType{Float32}, Optional: true, size: inTable},
		Global: Companion{Suffix: ".quant_state.bitsandbytes__" + table, DTypes: []DType{Uint8}, size: inState},
		group:  (*quantised).elements, weights: weightPlace.onlyLinear, unread: []string{"weight.quant_map"},
	}
}

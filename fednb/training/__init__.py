"""How clients train: step by step (`loop`), or all of them in one step (`stacked`)."""

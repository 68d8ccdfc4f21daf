"""What works on a case afterwards: diff says which stage and operator is at fault, bisect which rule, minify what little still fails."""

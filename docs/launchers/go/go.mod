module example.org/launcher

go 1.21

module plumbline/adapter

go 1.23

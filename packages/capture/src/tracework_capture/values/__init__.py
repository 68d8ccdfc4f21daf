"""How Python objects are modelled while a frame is traced; the table is values/wrap.py."""

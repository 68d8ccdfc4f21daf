"""What was compiled, as data, as ten lines and as one page: recorder.py sees it, document.py makes data of it, text.py and page.py show these."""
